"""Kills guard, worker or both of a run at its n-th event: `killer.py REPORT N VICTIMS COMMAND...` (ptrace(2); one file, stdlib).

An event is one entry into or return from a system call of the guard or of any thread of the worker, so every n is another
point between the first instruction and the last, and no clock is asked. VICTIMS: "guard", "worker", "guard,worker", or with
another signal than SIGKILL "guard:SIGINT". REPORT gets {"events": how many there were, "held": how many when the guard had
blocked that signal for good (null: not before n; the C library does it for a moment here and there), "holds": whether it did so
at its last event, "first": how many when the worker was born, "killed": whether n was reached, "status": the guard's wait
status}. The first process is the guard, what it forks is the worker, whose own forks are let go untraced.
"""
import ctypes
import json
import os
import signal
import sys

TRACEME, CONT, DETACH, SYSCALL, SETOPTIONS, GETEVENTMSG = 0, 7, 17, 24, 0x4200, 0x4201
OPTIONS = 1 | 2 | 4 | 8 | 16  # TRACESYSGOOD, and the events of fork, vfork, clone and exec
EVENT_CLONE, EVENT_EXEC = 3, 4
WALL = 0x40000000
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Tracer:
    def __init__(self, at, victims):
        victims = [victim.partition(":")[::2] for victim in victims]
        victims = {role: signal.Signals[name or "SIGKILL"] for role, name in victims}
        self.at, self.victims, self.events, self.first, self.killed, self.status = at, victims, 0, 0, False, None
        self.held, self.holds = None, False
        self.pids, self.roles = {}, {}  # role -> process; thread -> role
        self.early = set()  # stopped before its parent's event named it

    def start(self, command):
        pid = os.fork()
        if pid == 0:
            ptrace(TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.execv(command[0], command)
        os.waitpid(pid, 0)
        self.pids["guard"], self.roles[pid] = pid, "guard"
        ptrace(SETOPTIONS, pid, None, OPTIONS)
        self.resume(pid)

    def resume(self, tid, signum=0):
        ptrace(CONT if self.killed else SYSCALL, tid, None, signum)

    def run(self):
        while self.roles:
            tid, raw = os.waitpid(-1, WALL)
            if not os.WIFSTOPPED(raw):
                self.roles.pop(tid, None)
                if tid == self.pids["guard"]:
                    self.status = raw
            elif tid not in self.roles:
                self.early.add(tid)
            elif raw >> 16 == EVENT_EXEC:
                self.resume(tid)
            elif raw >> 16:
                self.forked(tid, raw >> 16)
            elif os.WSTOPSIG(raw) == signal.SIGTRAP | 0x80:
                self.count(tid)
            else:
                self.resume(tid, os.WSTOPSIG(raw))

    def forked(self, tid, event):
        message = ctypes.c_ulong()
        ptrace(GETEVENTMSG, tid, None, ctypes.addressof(message))
        new, role = message.value, self.roles[tid]
        if new not in self.early:
            os.waitpid(new, WALL)
        self.early.discard(new)
        if event != EVENT_CLONE and role == "worker":
            ptrace(DETACH, new, None, None)
        else:
            self.roles[new] = role if event == EVENT_CLONE else "worker"
            if event != EVENT_CLONE:
                self.pids["worker"], self.first = new, self.events
            self.resume(new)
        self.resume(tid)

    def count(self, tid):
        self.events += not self.killed
        if "worker" not in self.pids and tid == self.pids["guard"]:
            self.held = self.held or self.events if self.blocks(tid) else None
        elif "worker" not in self.roles.values() and tid == self.pids["guard"]:
            self.holds = self.blocks(tid)
        if self.events >= self.at and not self.killed and all(victim in self.pids for victim in self.victims):
            self.killed = True
            for victim, signum in self.victims.items():
                if victim in self.roles.values():  # else it has ended by itself
                    os.kill(self.pids[victim], signum)
        self.resume(tid)

    def blocks(self, pid):
        with open("/proc/%d/status" % pid) as file:
            mask = int(next(line for line in file if line.startswith("SigBlk")).split()[1], 16)
        return bool(mask >> (self.victims.get("guard", signal.SIGKILL) - 1) & 1)


if __name__ == "__main__":
    tracer = Tracer(int(sys.argv[2]), sys.argv[3].split(","))
    tracer.start(sys.argv[4:])
    tracer.run()
    with open(sys.argv[1], "w") as file:
        json.dump({"events": tracer.events, "held": tracer.held, "holds": tracer.holds, "first": tracer.first, "killed": tracer.killed, "status": tracer.status}, file)
