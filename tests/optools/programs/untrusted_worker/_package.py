# SPDX-License-Identifier: Apache-2.0
import os, signal, sys, time

def crash(x):
    print("about to crash")
    os.kill(os.getpid(), signal.SIGSEGV)

def leave(x):
    os._exit(3)

def hang(x):
    with open("hanging", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(1000)

def which(x):
    with open("pids", "a") as file:
        print(os.getpid(), file=file)
    return x
