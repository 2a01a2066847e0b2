"""Many runs of one bundle, fast: `many.py BUNDLE`, then one path of an input document a line on stdin.

The bundle is read and its modules are loaded once; each run is a fork of this process that calls what `run` calls. So a run
costs a tenth of one that starts an interpreter, and guard, worker and agent are real processes all the same. Prints the exit
code of each run.
"""
import os
import sys
import zipimport

MODULES = ("worker.sandbox_runner", "worker.starting", "worker.guarding", "worker.guard", "worker.finish", "worker.conclude", "worker.harnesses.generic_reader")

if __name__ == "__main__":
    loader = {"__name__": "bundle", "__file__": sys.argv[1]}
    exec(zipimport.zipimporter(sys.argv[1]).get_code("__main__"), loader)
    loader["load"](sys.argv[1])
    for name in MODULES:
        __import__(name)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            code = 70
            try:
                code = sys.modules["worker.sandbox_runner"].main([line.strip()])
            finally:
                os._exit(code)
        print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]), flush=True)
