"""Answers from stored models and counts."""

from pmflib_tasks.questions.answers import answer_questions as answer_questions
from pmflib_tasks.questions.answers import read_questions as read_questions
from pmflib_tasks.questions.answers import score_answers as score_answers
from pmflib_tasks.questions.feature import FEATURE as FEATURE
