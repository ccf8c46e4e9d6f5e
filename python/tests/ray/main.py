"""Runs tests in the interpreter that has Ray, and ends the cluster behind them."""

import sys
import unittest
import warnings

from shared import Machines

if __name__ == "__main__":
    # Ray leaves sockets to the collector.
    warnings.simplefilter("ignore", ResourceWarning)
    program = unittest.main(module=None, argv=["run.py", *sys.argv[1:]], exit=False, verbosity=2, warnings="ignore")
    Machines.stop()
    sys.exit(not program.result.wasSuccessful())
