"""Nights of a small pipeline, its flow run as plain functions: no server is needed."""

import json

import numpy as np

from pmflib.store import Store
from pmflib_flows import etl
from pmflib_tasks.config import load_config
from pmflib_tasks.stage import Stage
from tests.pipelines import make_schema


class Nights:
    """A pipeline in a folder, and what its runs said."""

    def __init__(self, folder, schema, patch, **sections):
        # without retries
        patch.setattr(Stage, "__call__", lambda self, *given, **more: self.fn(*given, **more))
        self.folder, self.log = folder, folder / "log"
        self.path = folder / "pipeline.toml"
        self.log.mkdir(parents=True, exist_ok=True)
        schema.save(folder / "schema.json")
        self.configure(**sections)

    def configure(self, **sections):
        """Write the configuration."""
        source = {"path": "log", "layout": "long"}
        source |= {"sample": "user", "variable": "movie", "value": "rating", "time": "ts"}
        known = {"source": source, "store": {"folds": 8}, "model": {"rank": 2}}
        lines = []
        for name, options in {**known, **sections}.items():
            lines.append(f"[{name}]")
            # JSON texts and numbers are TOML, too
            lines += [f"{option} = {json.dumps(value)}" for option, value in options.items()]
        self.path.write_text("\n".join(lines) + "\n")

    def deliver(self, name, codes, users, *, upside_down=False):
        """Write a file of ratings: rows of codes of some users, -1 where there is none."""
        lines = ["user,movie,rating,ts"]
        for user, row in zip(users, codes.tolist(), strict=True):
            for movie, code in enumerate(row):
                if code >= 0:
                    level = 4 - code if upside_down else code
                    lines.append(f"u{user},v{movie},{level},{user}")
        (self.log / name).write_text("\n".join(lines) + "\n")

    def run(self, **options):
        """Facts of a run."""
        return etl.etl.fn(str(self.path), **options)

    @property
    def config(self):
        return load_config(self.path)

    @property
    def store(self):
        return Store(self.config.resolve(self.config.store.path))


def draw_ratings(n_users, n_movies, *, seed=0, share=0.8):
    """Ratings 0 to 4 of users of two tastes, -1 where there is none."""
    rng = np.random.default_rng(seed)
    taste = rng.integers(0, 2, (n_users, 1))
    liked = (np.arange(n_movies) % 2) == taste
    codes = np.where(liked, 4, 1) - rng.integers(0, 2, (n_users, n_movies))
    codes[rng.random(codes.shape) < 0.1] = 2
    codes[rng.random(codes.shape) > share] = -1
    return codes


def make_movies(n_movies):
    return make_schema(*[5] * n_movies)
