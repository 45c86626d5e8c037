"""The methods of the papers, as functions of arrays: SPA, CNMF-OPT, mirror descent, SymNMF, triples, the NMF rank."""
