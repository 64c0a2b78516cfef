/*
 * Every symbol of hooks.def, used on sockets, one small scene after the other. The program knows
 * nothing of the shim: it prints what it sees, and the test compares what it prints over the kernel
 * with what it prints over the shim. Nothing that differs from run to run (ports, times) is
 * printed.
 *
 *      calls              all scenes
 *      calls NAME...      these
 */
#include "tests/shim/calls.h"

void tcp_pair_of(int v[2], const struct linger *linger)
{
        struct sockaddr_in sa;
        int l = listener(&sa);

        if (linger && setsockopt(l, SOL_SOCKET, SO_LINGER, linger, sizeof(*linger)) < 0)
                die("SO_LINGER");
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(v[0], (void *)&sa, sizeof(sa)) < 0)
                die("connect");
        v[1] = accept(l, NULL, NULL);
        if (v[1] < 0)
                die("accept");
        close(l);
}

void tcp_pair(int v[2])
{
        tcp_pair_of(v, NULL);
}

int udp_socket(struct sockaddr_in *sa)
{
        socklen_t len = sizeof(*sa);
        int s = socket(AF_INET, SOCK_DGRAM, 0);

        *sa = loopback();
        if (s < 0 || bind(s, (void *)sa, sizeof(*sa)) < 0 || getsockname(s, (void *)sa, &len) < 0)
                die("udp");
        return s;
}

void wait_readable(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        poll(&p, 1, LONG);
}

char pattern(int i)
{
        return (char)(i * 31 + i / 251);
}

void write_much(int fd)
{
        char b[MUCH];

        for (int i = 0; i < MUCH; i++)
                b[i] = pattern(i);
        SHOW(write(fd, b, MUCH));
}

void read_some(int fd, int at, int n, int flags)
{
        char b[MUCH];
        ssize_t r = recv(fd, b, (size_t)n, flags);
        int i = 0;

        while (i < r && b[i] == pattern(at + i))
                i++;
        printf("  %d at %d: %zd, %d right, %s\n", n, at, r, i, name_of(r));
}

const char *self;

static const struct {
        const char *name;
        void (*run)(void);
} scenes[] = {
        {"again", scene_again},
        {"again_given_up", scene_again_given_up},
        {"small_reads", scene_small_reads},
        {"read_write", scene_read_write},
        {"vectors", scene_vectors},
        {"vectors_at", scene_vectors_at},
        {"flags", scene_flags},
        {"ends", scene_ends},
        {"closes_unread", scene_closes_unread},
        {"sigpipe", scene_sigpipe},
        {"udp", scene_udp},
        {"connect", scene_connect},
        {"bound_connect", scene_bound_connect},
        {"connect_again", scene_connect_again},
        {"accept_flags", scene_accept_flags},
        {"met_at_once", scene_met_at_once},
        {"options", scene_options},
        {"min_ttl", scene_min_ttl},
        {"ioctl", scene_ioctl},
        {"timeouts", scene_timeouts},
        {"dup", scene_dup},
        {"close_range", scene_close_range},
        {"close_range_peers", scene_close_range_peers},
        {"new_numbers", scene_new_numbers},
        {"stdio", scene_stdio},
        {"standard_streams", scene_standard_streams},
        {"streams_before", scene_streams_before},
        {"streams_reopened", scene_streams_reopened},
        {"streams_inherited", scene_streams_inherited},
        {"vdprintf", scene_vdprintf},
        {"sendfile", scene_sendfile},
        {"poll", scene_poll},
        {"select", scene_select},
        {"select_idle", scene_select_idle},
        {"select_microseconds", scene_select_microseconds},
        {"select_again", scene_select_again},
        {"epoll", scene_epoll},
        {"poll_beside_writers", scene_poll_beside_writers},
        {"epoll_before_connect", scene_epoll_before_connect},
        {"signals", scene_signals},
        {"signals_at_fork", scene_signals_at_fork},
        {"signal_calls", scene_signal_calls},
        {"posix_aio", scene_posix_aio},
        {"handlers_in_turn", scene_handlers_in_turn},
        {"fork", scene_fork},
        {"fork_cleared", scene_fork_cleared},
        {"cleared_first", scene_cleared_first},
        {"fork_beside_options", scene_fork_beside_options},
        {"port_again", scene_port_again},
        {"udp_answered", scene_udp_answered},
        {"udp_later", scene_udp_later},
        {"udp_awaited", scene_udp_awaited},
        {"log_nowhere", scene_log_nowhere},
        {"log_vforked", scene_log_vforked},
        {"listener_ends", scene_listener_ends},
        {"listener_closes", scene_listener_closes},
        {"loopback_broadcast", scene_loopback_broadcast},
        {"refused_each_time", scene_refused_each_time},
        {"connect_failed", scene_connect_failed},
        {"nonblock_shared", scene_nonblock_shared},
        {"exec", scene_exec},
        {"exec_busy", scene_exec_busy},
        {"cloned", scene_cloned},
        {"namespaces", scene_namespaces},
        {"exec_cleaned", scene_exec_cleaned},
        {"spawn_and_close", scene_spawn_and_close},
        {"spawned_by_actions", scene_spawned_by_actions},
        {"exec_and_close", scene_exec_and_close},
        {"exec_ends", scene_exec_ends},
        {"exec_listener", scene_exec_listener},
        {"exec_many", scene_exec_many},
        {"exec_static", scene_exec_static},
        {"exec_timeout", scene_exec_timeout},
        {"by_handle", scene_by_handle},
        {"by_version", scene_by_version},
        {"deep_bound", scene_deep_bound},
        {"second_libc", scene_second_libc},
        {"first_forks", scene_first_forks},
        {"first_waits", scene_first_waits},
        {"linger", scene_linger},
        {"linger_elsewhere", scene_linger_elsewhere},
        {"reuseport_leaves", scene_reuseport_leaves},
        {"exec_twice", scene_exec_twice},
        {"daemon", scene_daemon},
        {"quick_exit", scene_quick_exit},
        {"atexit", scene_atexit},
        {"threads", scene_threads},
        {"epoll_threads", scene_epoll_threads},
        {"cancel", scene_cancel},
        {"cancel_anywhere", scene_cancel_anywhere},
        {"errno_left", scene_errno_left},
        {"syscall", scene_syscall},
        {"syscall_waits", scene_syscall_waits},
        {"dual", scene_dual},
        {"dual_udp", scene_dual_udp},
        {"peer_gone", scene_peer_gone},
        {"reuse_same_port", scene_reuse_same_port},
        {"rights", scene_rights},
        {"rights_of_a_wrong_length", scene_rights_of_a_wrong_length},
        {"rights_strangers", scene_rights_strangers},
        {"rights_in_flight", scene_rights_in_flight},
        {"rights_many", scene_rights_many},
        {"rights_outlive", scene_rights_outlive},
        {"faults_tcp", scene_faults_tcp},
        {"faults_udp", scene_faults_udp},
        {"faults_names", scene_faults_names},
        {"faults_waiting", scene_faults_waiting},
        {"faults_of_its_own", scene_faults_of_its_own},
        {"faults_before_sockets", scene_faults_before_sockets},
        {"beside_received", scene_beside_received},
        {"beside_times", scene_beside_times},
        {"beside_stamps", scene_beside_stamps},
        {"beside_truncated", scene_beside_truncated},
        {"beside_sent", scene_beside_sent},
        {"beside_wrong", scene_beside_wrong},
        {"segments", scene_segments},
        {"gro", scene_gro},
        {"cork", scene_cork},
        {"cork_named", scene_cork_named},
        {"cork_long", scene_cork_long},
        {"cork_beside", scene_cork_beside},
        {"cork_shared", scene_cork_shared},
        {"cork_many", scene_cork_many},
        {"cork_files", scene_cork_files},
        {"cork_kernels", scene_cork_kernels},
        {"unsent_mark", scene_unsent_mark},
        {"peek_offset", scene_peek_offset},
        {"peek_offset_datagrams", scene_peek_offset_datagrams},
        {"peek_offset_streams", scene_peek_offset_streams},
        {"bound_to_device", scene_bound_to_device},
        {"port_range", scene_port_range},
        {"groups", scene_groups},
        {"errors_kept", scene_errors_kept},
        {"stream_flags", scene_stream_flags},
        {"datagram_flags", scene_datagram_flags},
        {"many_messages", scene_many_messages},
        {"many_messages_late_error", scene_many_messages_late_error},
        {"many_messages_of_errors", scene_many_messages_of_errors},
        {"all_in_time", scene_all_in_time},
        {"options_swept", scene_options_swept},
        {"options_set_swept", scene_options_set_swept},
        {"flow_options", scene_flow_options},
        {"options_inherited", scene_options_inherited},
        {"stream_times", scene_stream_times},
        {"stream_sent_times", scene_stream_sent_times},
        {"datagram_times", scene_datagram_times},
        {"ip_options", scene_ip_options},
        {"ip_options_datagrams", scene_ip_options_datagrams},
        {"ip_options_connections", scene_ip_options_connections},
        {"shutdown_reading", scene_shutdown_reading},
        {"shutdown_unread", scene_shutdown_unread},
        {"shutdown_waiting", scene_shutdown_waiting},
        {"shutdown_connecting", scene_shutdown_connecting},
        {"send_to_closed", scene_send_to_closed},
        {"low_water_sizes", scene_low_water_sizes},
        {"listener_ends_elsewhere", scene_listener_ends_elsewhere},
        {"urgent", scene_urgent},
        {"low_water", scene_low_water},
        {"low_water_reads", scene_low_water_reads},
        {"flow_passed", scene_flow_passed},
        {"late_resets", scene_late_resets},
        {"segment_after_end", scene_segment_after_end},
        {"splice_full", scene_splice_full},
        {"sendfile_beyond", scene_sendfile_beyond},
        {"small_writes", scene_small_writes},
        {"peek_all_late", scene_peek_all_late},
        {"empty_buffers", scene_empty_buffers},
        {"disconnect", scene_disconnect},
        {"disconnect_beside_reader", scene_disconnect_beside_reader},
        {"disconnect_beside_writer", scene_disconnect_beside_writer},
        {"names_refused", scene_names_refused},
        {"names_of_no_length", scene_names_of_no_length},
        {"sources", scene_sources},
        {"backlog", scene_backlog},
        {"mixed_ready", scene_mixed_ready},
        {"unknown_events", scene_unknown_events},
        {"sandbox", scene_sandbox},
        {"sandbox_peer", scene_sandbox_peer},
        {"landlock_connects", scene_landlock_connects},
        {"landlock_connects_child", scene_landlock_connects_child},
        {"landlock_scope", scene_landlock_scope},
        {"landlock_scope_child", scene_landlock_scope_child},
        {"landlock_scope_peer", scene_landlock_scope_peer},
        {"netns_left", scene_netns_left},
        {"no_eventfd", scene_no_eventfd},
        {"jail", scene_jail},
        {"numbers_limited", scene_numbers_limited},
        {"files_limited", scene_files_limited},
        {"numbers_lowered", scene_numbers_lowered},
        {"numbers_few", scene_numbers_few},
        {"numbers_used_up", scene_numbers_used_up},
        {"numbers_for_nobody", scene_numbers_for_nobody},
        {"numbers_ours", scene_numbers_ours},
        {"async_connections", scene_async_connections},
        {"async_sockets", scene_async_sockets},
        {"async_told", scene_async_told},
        {"memory_locked", scene_memory_locked},
        {"memory_locked_with_sets", scene_memory_locked_with_sets},
        {"memory_dumped", scene_memory_dumped},
        {"data_limited", scene_data_limited},
        {"space_limited", scene_space_limited},
        {"space_limited_later", scene_space_limited_later},
        {"epoll_duplicates", scene_epoll_duplicates},
        {"epoll_renumbered", scene_epoll_renumbered},
        {"epoll_duplicated_before", scene_epoll_duplicated_before},
        {"epoll_beside_closes", scene_epoll_beside_closes},
        {"epoll_edges", scene_epoll_edges},
        {"epoll_edges_whole", scene_epoll_edges_whole},
        {"epoll_edges_refused", scene_epoll_edges_refused},
        {"epoll_edges_raced", scene_epoll_edges_raced},
        {"epoll_change_beside_one", scene_epoll_change_beside_one},
        {"epoll_order", scene_epoll_order},
        {"sets_over_exec", scene_sets_over_exec},
        {"epoll_nested", scene_epoll_nested},
        {"zerocopy", scene_zerocopy},
        {"zerocopy_streams", scene_zerocopy_streams},
        {"zerocopy_datagrams", scene_zerocopy_datagrams},
        {"zerocopy_receive", scene_zerocopy_receive},
        {"kept_errors", scene_kept_errors},
        {"epoll_kernel_first", scene_epoll_kernel_first},
        {"epoll_come_and_gone", scene_epoll_come_and_gone},
        {"epoll_exclusive", scene_epoll_exclusive},
        {"epoll_data", scene_epoll_data},
        {"epoll_one_at_a_time", scene_epoll_one_at_a_time},
        {"epoll_by_ring", scene_epoll_by_ring},
        {"epoll_forked", scene_epoll_forked},
        {"epoll_of_no_set", scene_epoll_of_no_set},
        {"same_ends", scene_same_ends},
        {"sets_passed", scene_sets_passed},
        {"sets_in_sets_passed", scene_sets_in_sets_passed},
        {"sets_sent_and_closed", scene_sets_sent_and_closed},
        {"sets_sent_by_threads", scene_sets_sent_by_threads},
        {"epoll_many", scene_epoll_many},
        {"acceptors", scene_acceptors},
        {"interrupted", scene_interrupted},
        {"interrupted_sending", scene_interrupted_sending},
        {"interrupted_splice", scene_interrupted_splice},
        {"interrupted_by_one_who_waits", scene_interrupted_by_one_who_waits},
        {"stopped", scene_stopped},
        {"storm", scene_storm},
};

static bool chosen(const char *name, int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                if (!strcmp(argv[i], name))
                        return true;
        return argc == 1;
}

int main(int argc, char **argv)
{
        if (argc == 3 && !strcmp(argv[1], "--child"))
                child_of_exec(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "--closer"))
                closer_of_exec(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "--close"))
                close_of_exec(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "--late"))
                late_child_of_exec(atoi(argv[2]));
        if (argc == 3 && !strcmp(argv[1], "--connect"))
                connector_of_exec(atoi(argv[2]));
        self = argv[0];
        if (argc == 4 && !strcmp(argv[1], "--first"))
                child_of_first(atoi(argv[2]), atoi(argv[3]));
        if (argc == 3 && !strcmp(argv[1], "--sets"))
                child_with_sets(argv[2]);
        if (argc == 3 && !strcmp(argv[1], "--world"))
                child_with_world(argv[2]);
        if (argc == 3 && !strcmp(argv[1], "--nest"))
                child_with_nest(argv[2]);
        if (argc == 4 && !strcmp(argv[1], "--last"))
                last_of_first(atoi(argv[2]), atoi(argv[3]));
        setvbuf(stdout, NULL, _IOLBF, 0);
        for (size_t i = 0; i < ARRAY_LEN(scenes); i++) {
                if (!chosen(scenes[i].name, argc, argv))
                        continue;
                printf("%s\n", scenes[i].name);
                scenes[i].run();
        }
        return 0;
}
