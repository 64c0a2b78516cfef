/*
 * Who does not answer: slow, or stopped? A machine that is busy leaves a process without a
 * processor for seconds, and that is no reason to fail; one that is stopped is not worth the wait.
 */
#ifndef UNETD_STOPPED_H
#define UNETD_STOPPED_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if a process is stopped (SIGSTOP, a debugger) or dead, by /proc/PID/stat
 * (proc_pid_stat(5)); false if that cannot be read, and for pid 0. */
bool process_is_stopped(int32_t pid);
/* Returns true if a process that has something to do sleeps, and has not run since the last call,
 * which left in *ran how long it had; 0 at first. So is one whose container is paused (cgroups(7),
 * the freezer), which looks like any that sleeps. */
bool process_is_frozen(int32_t pid, uint64_t *ran);

#endif
