/*
 * What the files of shim_calls share: how results are shown, and pairs of sockets. Includes what a
 * program of the scenes may use, since they are one program.
 */
#ifndef TESTS_SHIM_CALLS_H
#define TESTS_SHIM_CALLS_H

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utmp.h>

#include "base/sys.h"

#define RESTORER     0x04000000 /* libc's own flag, seen where the kernel answers */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

const char *name_of(long r);

/* Prints a call's result: its name and, of a failure, the error. */
#define SHOW(call)                                                 \
        do {                                                       \
                long r_ = (long)(call);                            \
                printf("  %s = %ld %s\n", #call, r_, name_of(r_)); \
        } while (0)
/* The same where the value itself varies from run to run. */
#define SHOW_OK(call)                                     \
        do {                                              \
                long r_ = (long)(call);                   \
                printf("  %s: %s\n", #call, name_of(r_)); \
        } while (0)

void show_bytes(const char *what, const char *p, ssize_t n);
void die(const char *what);
struct sockaddr_in loopback(void);
/* A TCP listener on a port of loopback; *sa is its address. */
int listener(struct sockaddr_in *sa);
/* Two ends of a TCP connection. */
void tcp_pair(int v[2]);
/* ... of a listener that was told to linger. */
void tcp_pair_of(int v[2], const struct linger *linger);
int udp_socket(struct sockaddr_in *sa);
void close2(int v[2]);
/* How long, in ms, what must come is waited for. */
#define LONG 120000
void wait_readable(int fd);
void wait_bytes(int fd, int n); /* until so many are there */
/* What poll() says of it. */
short ready_events(int fd);
void wait_events(int fd, short events);
/* recv() of at most 64 bytes, which are shown. */
void show_recv(int fd, size_t n, int flags);

#define MUCH 3000
/* Byte i of what write_much() writes, which is MUCH of them. */
char pattern(int i);
void write_much(int fd);
/* Reads n bytes with these flags and says whether they are those from position `at`. */
void read_some(int fd, int at, int n, int flags);

/* The names of libc that no header declares. */
ssize_t __read(int, void *, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __send(int, const void *, size_t, int);
int __connect(int, const struct sockaddr *, socklen_t);
int __close(int);
int __poll(struct pollfd *, nfds_t, int);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __fcntl(int, int, ...);
int __dup2(int, int);
int __pipe(int *);
int __open(const char *, int, ...);
int __open64(const char *, int, ...);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __dprintf_chk(int, int, const char *, ...);
int __vdprintf_chk(int, int, const char *, va_list);
int __sigaction(int, const struct sigaction *, struct sigaction *);
pid_t _Fork(void);
sighandler_t bsd_signal(int, sighandler_t);

/* Parts of scenes that run in programs of their own (`calls --child FD`, `--closer FD`, `--close
 * FD`, `--late FD`). */
extern const char *self;
void child_of_exec(int fd);
void closer_of_exec(int fd);
void close_of_exec(int fd);
void late_child_of_exec(int fd);
void connector_of_exec(int port);
void child_of_first(int how, int fd);
void last_of_first(int fd, int pipe);
void child_with_sets(const char *numbers);
void scene_sets_over_exec(void);
void child_with_world(const char *numbers);
void scene_sets_passed(void);
void child_with_nest(const char *numbers);
void scene_sets_in_sets_passed(void);
void scene_sets_sent_and_closed(void);
void scene_sets_sent_by_threads(void);

void scene_again(void);
void scene_again_given_up(void);
void scene_small_reads(void);
void scene_read_write(void);
void scene_vectors(void);
void scene_vectors_at(void);
void scene_flags(void);
void scene_ends(void);
void scene_closes_unread(void);
void scene_sigpipe(void);
void scene_udp(void);
void scene_connect(void);
void scene_bound_connect(void);
void scene_connect_again(void);
void scene_accept_flags(void);
void scene_met_at_once(void);
void scene_options(void);
void scene_ioctl(void);
void scene_timeouts(void);
void scene_dup(void);
void scene_close_range(void);
void scene_close_range_peers(void);
void scene_new_numbers(void);
void scene_stdio(void);
void scene_standard_streams(void);
void scene_streams_before(void);
void scene_streams_reopened(void);
void scene_log_nowhere(void);
void scene_log_vforked(void);
void scene_listener_ends(void);
void scene_listener_closes(void);
void scene_loopback_broadcast(void);
void scene_streams_inherited(void);
void scene_vdprintf(void);
void scene_sendfile(void);
void scene_poll(void);
void scene_poll_beside_writers(void);
void scene_select(void);
void scene_select_idle(void);
void scene_select_microseconds(void);
void scene_select_again(void);
void scene_epoll(void);
void scene_epoll_before_connect(void);
void scene_signals(void);
void scene_signals_at_fork(void);
void scene_signal_calls(void);
void scene_posix_aio(void);
void scene_handlers_in_turn(void);
void scene_fork(void);
void scene_fork_beside_options(void);
void scene_fork_cleared(void);
void scene_cleared_first(void);
void scene_port_again(void);
void scene_udp_answered(void);
void scene_udp_later(void);
void scene_udp_awaited(void);
void scene_refused_each_time(void);
void scene_connect_failed(void);
void scene_nonblock_shared(void);
void scene_exec(void);
void scene_exec_busy(void);
void scene_cloned(void);
void scene_namespaces(void);
void scene_exec_cleaned(void);
void scene_spawn_and_close(void);
void scene_spawned_by_actions(void);
void scene_exec_and_close(void);
void scene_exec_ends(void);
void scene_exec_listener(void);
void scene_exec_many(void);
void scene_exec_static(void);
void scene_exec_timeout(void);
void scene_by_handle(void);
void scene_by_version(void);
void scene_deep_bound(void);
void scene_second_libc(void);
void scene_first_forks(void);
void scene_first_waits(void);
void scene_linger(void);
void scene_linger_elsewhere(void);
void scene_reuseport_leaves(void);
void scene_exec_twice(void);
void scene_daemon(void);
void scene_quick_exit(void);
void scene_atexit(void);
void scene_threads(void);
void scene_epoll_threads(void);
void scene_cancel(void);
void scene_cancel_anywhere(void);
void scene_errno_left(void);
void scene_syscall(void);
void scene_syscall_waits(void);
void scene_dual(void);
void scene_dual_udp(void);
void scene_peer_gone(void);
void scene_reuse_same_port(void);
void scene_rights(void);
void scene_rights_of_a_wrong_length(void);
void scene_rights_strangers(void);
void scene_rights_in_flight(void);
void scene_rights_many(void);
void scene_rights_outlive(void);
void scene_faults_tcp(void);
void scene_faults_udp(void);
void scene_faults_names(void);
void scene_faults_waiting(void);
void scene_faults_of_its_own(void);
void scene_faults_before_sockets(void);
void scene_min_ttl(void);
void scene_beside_received(void);
void scene_beside_times(void);
void scene_beside_stamps(void);
void scene_beside_truncated(void);
void scene_beside_sent(void);
void scene_beside_wrong(void);
void scene_segments(void);
void scene_gro(void);
void scene_cork(void);
void scene_cork_named(void);
void scene_cork_long(void);
void scene_cork_beside(void);
void scene_cork_shared(void);
void scene_cork_many(void);
void scene_cork_files(void);
void scene_cork_kernels(void);
void scene_unsent_mark(void);
void scene_peek_offset(void);
void scene_peek_offset_datagrams(void);
void scene_peek_offset_streams(void);
void scene_bound_to_device(void);
void scene_port_range(void);
void scene_groups(void);
void scene_errors_kept(void);
void scene_stream_flags(void);
void scene_datagram_flags(void);
void scene_many_messages(void);
void scene_many_messages_late_error(void);
void scene_many_messages_of_errors(void);
void scene_all_in_time(void);
void scene_options_swept(void);
void scene_options_set_swept(void);
void scene_flow_options(void);
void scene_options_inherited(void);
void scene_stream_times(void);
void scene_stream_sent_times(void);
void scene_datagram_times(void);
void scene_ip_options(void);
void scene_ip_options_datagrams(void);
void scene_ip_options_connections(void);
void scene_shutdown_reading(void);
void scene_shutdown_unread(void);
void scene_shutdown_waiting(void);
void scene_shutdown_connecting(void);
void scene_send_to_closed(void);
void scene_low_water_sizes(void);
void scene_listener_ends_elsewhere(void);
void scene_urgent(void);
void scene_low_water(void);
void scene_low_water_reads(void);
void scene_flow_passed(void);
void scene_late_resets(void);
void scene_segment_after_end(void);
void scene_splice_full(void);
void scene_sendfile_beyond(void);
void scene_small_writes(void);
void scene_peek_all_late(void);
void scene_empty_buffers(void);
void scene_disconnect(void);
void scene_disconnect_beside_reader(void);
void scene_disconnect_beside_writer(void);
void scene_names_refused(void);
void scene_names_of_no_length(void);
void scene_sources(void);
void scene_backlog(void);
void scene_mixed_ready(void);
void scene_unknown_events(void);
void scene_sandbox(void);
void scene_sandbox_peer(void);
void scene_landlock_connects(void);
void scene_landlock_connects_child(void);
void scene_landlock_scope(void);
void scene_landlock_scope_child(void);
void scene_landlock_scope_peer(void);
void scene_netns_left(void);
void scene_no_eventfd(void);
void scene_jail(void);
void scene_numbers_limited(void);
void scene_files_limited(void);
void scene_numbers_lowered(void);
void scene_numbers_few(void);
void scene_numbers_used_up(void);
void scene_numbers_for_nobody(void);
void scene_numbers_ours(void);
void scene_async_connections(void);
void scene_async_sockets(void);
void scene_async_told(void);
void scene_memory_locked(void);
void scene_memory_locked_with_sets(void);
void scene_memory_dumped(void);
void scene_data_limited(void);
void scene_space_limited(void);
void scene_space_limited_later(void);
void scene_epoll_duplicates(void);
void scene_epoll_renumbered(void);
void scene_epoll_duplicated_before(void);
void scene_epoll_beside_closes(void);
void scene_epoll_edges(void);
void scene_epoll_edges_whole(void);
void scene_epoll_edges_refused(void);
void scene_epoll_edges_raced(void);
void scene_epoll_change_beside_one(void);
void scene_epoll_order(void);
void scene_epoll_nested(void);
void scene_zerocopy(void);
void scene_zerocopy_streams(void);
void scene_zerocopy_datagrams(void);
void scene_zerocopy_receive(void);
void scene_kept_errors(void);
void scene_epoll_kernel_first(void);
void scene_epoll_come_and_gone(void);
void scene_epoll_exclusive(void);
void scene_epoll_data(void);
void scene_epoll_one_at_a_time(void);
void scene_epoll_by_ring(void);
void scene_epoll_forked(void);
void scene_epoll_of_no_set(void);
void scene_same_ends(void);
void scene_epoll_many(void);
void scene_acceptors(void);
void scene_interrupted(void);
void scene_interrupted_sending(void);
void scene_interrupted_splice(void);
void scene_interrupted_by_one_who_waits(void);
void scene_stopped(void);
void scene_storm(void);

/* A process that sends SIGALRM when the one who asks sleeps in its next call; started before there
 * are sockets. */
void start_alarmer(void);
void alarm_then(void);
void stop_alarmer(void);
void until_asleep(pid_t pid);

/* Handler of scenes: sets `got`. */
void on_signal(int sig);

#endif
