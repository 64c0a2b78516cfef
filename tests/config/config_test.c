/* The config file: what is set is set, and what is wrong is refused whole, with file and line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tcp/tcp_cc.h"
#include "tests/unit.h"

static const struct unetd_config defaults = UNETD_CONFIG_DEFAULT;

struct scratch {
        char dir[64], path[128];
        struct unetd_config c;
        struct config_error err;
};

static int make_scratch(void **state)
{
        struct scratch *s = calloc(1, sizeof *s);

        strcpy(s->dir, "/tmp/unet-config-XXXXXX");
        assert_non_null(mkdtemp(s->dir));
        snprintf(s->path, sizeof s->path, "%s/unet.conf", s->dir);
        s->c = defaults;
        *state = s;
        return 0;
}

static int remove_scratch(void **state)
{
        struct scratch *s = *state;

        unlink(s->path);
        rmdir(s->dir);
        free(s);
        return 0;
}

static int read_text(struct scratch *s, const char *text)
{
        FILE *f = fopen(s->path, "w");

        assert_non_null(f);
        fputs(text, f);
        fclose(f);
        return config_read(s->path, &s->c, &s->err);
}

static int read_bytes(struct scratch *s, const void *bytes, size_t n)
{
        FILE *f = fopen(s->path, "w");

        assert_non_null(f);
        assert_int_equal(fwrite(bytes, 1, n, f), n);
        fclose(f);
        return config_read(s->path, &s->c, &s->err);
}

/* What would be read as something else than it looks like: a line that is cut and goes on as the
 * next, or ends at a zero. */
static void only_lines_of_text_are_read(void **state)
{
        static const struct {
                const char *bytes;
                size_t n;
                int line;
                const char *text;
        } bad[] = {
                {"[daemon]\nidle = 3\0 4\n", 22, 2, "a zero byte: this is no text"},
                {"[daemon]\n\0\n", 11, 2, "a zero byte: this is no text"},
                {"[daemon]\ridle = 3\r", 18, 1, "a carriage return inside a line"},
                {"[daemon]\r\nidle = 3\r", 19, 2, "a carriage return inside a line"},
        };
        struct scratch *s = *state;
        char text[1000];

        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                assert_int_equal(read_bytes(s, bad[i].bytes, bad[i].n), -EINVAL);
                assert_int_equal(s->err.line, bad[i].line);
                assert_string_equal(s->err.text, bad[i].text);
        }
        for (int blanks = 170; blanks < 220; blanks++) {
                int n = snprintf(text, sizeof text, "; %*s\n[daemon]\nidle = 4\nidel = 5\n", blanks,
                                 "idle = 5");
                bool fits = blanks + 2 <= 198;

                assert_int_equal(read_bytes(s, text, (size_t)n), -EINVAL);
                assert_int_equal(s->err.line, fits ? 4 : 1);
                assert_string_equal(s->err.text, fits ? "unknown key \"idel\" in [daemon]"
                                                      : "the line is too long");
        }
        assert_int_equal(config_read("/dev/zero", &s->c, &s->err), -EINVAL);
        assert_int_equal(config_read("/dev/null", &s->c, &s->err), 0);
        assert_int_equal(read_text(s, "[daemon]\r\nidle = 7\r\n"), 0);
        assert_int_equal(s->c.idle_s, 7);
}

static void sets_what_the_file_says(void **state)
{
        struct scratch *s = *state;

        assert_int_equal(
                read_text(s,
                          "; limits of a small machine\n[daemon]\nidle = -1\nlog = /tmp/x y.log\n\n"
                          "[limits]\nstacks = 7\n[memory]\nlarge_frames=64\n"
                          "[ip]\nttl = 33\nredirects = yes\nsource_routes = no\narp_reachable = 7\n"
                          "[tcp]\necn = ask\ncongestion = bbr\n"),
                0);
        assert_int_equal(s->c.ip_ttl, 33);
        assert_true(s->c.redirects && !s->c.source_routes);
        assert_int_equal(s->c.arp_reachable_s, 7);
        assert_int_equal(s->c.tcp_ecn, TCP_ECN_ASK);
        assert_int_equal(s->c.tcp_cc, TCP_CC_BBR);
        assert_int_equal(s->c.idle_s, -1);
        assert_string_equal(s->c.log, "/tmp/x y.log");
        assert_int_equal(s->c.per_uid.stacks, 7);
        assert_int_equal(s->c.geom.count[FRAME_LARGE], 64);
        assert_int_equal(s->c.per_uid.chans, defaults.per_uid.chans);
}

static void refuses(struct scratch *s, const char *text, int line, const char *complaint)
{
        assert_int_equal(read_text(s, text), -EINVAL);
        assert_string_equal(s->err.path, s->path);
        assert_int_equal(s->err.line, line);
        assert_string_equal(s->err.text, complaint);
        assert_memory_equal(&s->c, &defaults, sizeof defaults);
}

static void refuses_what_it_does_not_know(void **state)
{
        struct scratch *s = *state;

        refuses(s, "[limits]\nstacks = 5\nstack = 5\n", 3, "unknown key \"stack\" in [limits]");
        refuses(s, "[limit]\nstacks = 5\n", 2, "there is no section [limit]");
        refuses(s, "stacks = 5\n", 1, "\"stacks\" stands before any [section]");
        refuses(s, "[daemon]\nidle\n", 2, "not \"key = value\" and not \"[section]\"");
        refuses(s, "[daemon]\nidle = 1\nidle = 2\n", 3, "\"idle\" is set twice");
}

static void refuses_values_out_of_range(void **state)
{
        struct scratch *s = *state;
        char line[600];

        refuses(s, "[daemon]\nidle = -2\n", 2, "\"idle\" wants a number from -1 to 86400");
        refuses(s, "[daemon]\nidle = 3s\n", 2, "\"idle\" wants a number from -1 to 86400");
        refuses(s, "[daemon]\nidle =\n", 2, "\"idle\" wants a number from -1 to 86400");
        refuses(s, "[ip]\nttl = 256\n", 2, "\"ttl\" wants a number from 1 to 255");
        refuses(s, "[ip]\nredirects = 1\n", 2, "\"redirects\" is yes or no");
        refuses(s, "[tcp]\necn = yes\n", 2, "\"ecn\" wants accept, no or ask");
        refuses(s, "[tcp]\ncongestion = vegas\n", 2,
                "\"congestion\" wants cubic, reno, bbr or dctcp");
        refuses(s, "[limits]\nclients = 0\n", 2, "\"clients\" wants a number from 1 to 1048576");
        refuses(s, "[limits]\nclients = 99999999999999999999\n", 2,
                "\"clients\" wants a number from 1 to 1048576");
        snprintf(line, sizeof line, "[daemon]\nlog = /%0150d\n", 0);
        assert_int_equal(read_text(s, line), 0);
        s->c = defaults;
}

/* The first complaint and its line belong together, whatever follows. */
static void reports_the_first_of_several(void **state)
{
        refuses(*state, "[daemon]\nidle = 5\nfirst = 1\n[other]\nsecond = 2\nidle = x\n", 3,
                "unknown key \"first\" in [daemon]");
}

static void says_when_a_file_is_not_there(void **state)
{
        struct scratch *s = *state;

        assert_int_equal(config_read("/nonexistent/unet.conf", &s->c, &s->err), -ENOENT);
        assert_int_equal(s->err.line, 0);
        assert_string_equal(s->err.text, "No such file or directory");
        assert_int_equal(config_read("/", &s->c, &s->err), -EISDIR);
        assert_string_equal(s->err.text, "Is a directory");
}

/* Nobody may ever write into a pipe: it is not waited for. */
static void refuses_what_is_no_file(void **state)
{
        struct scratch *s = *state;
        char path[] = "/tmp/unet-config-XXXXXX", fifo[64];

        assert_non_null(mkdtemp(path));
        snprintf(fifo, sizeof fifo, "%s/fifo", path);
        assert_int_equal(mkfifo(fifo, 0600), 0);
        assert_int_equal(config_read(fifo, &s->c, &s->err), -EINVAL);
        assert_int_equal(s->err.line, 0);
        assert_string_equal(s->err.text, "this is no file, but a pipe or a device");
        unlink(fifo);
        rmdir(path);
        assert_int_equal(config_read("/dev/zero", &s->c, &s->err), -EINVAL);
        assert_int_equal(config_read("/dev/null", &s->c, &s->err), 0);
}

static void looks_in_its_places_in_order(void **state)
{
        struct scratch *s = *state;
        char found[CONFIG_PATH_MAX];

        assert_int_equal(read_text(s, ""), 0);
        unsetenv("UNET_CONFIG");
        setenv("XDG_CONFIG_HOME", s->dir, 1);
        assert_true(config_find(found));
        assert_string_equal(found, s->path);
        setenv("UNET_CONFIG", "/named/explicitly", 1);
        assert_true(config_find(found));
        assert_string_equal(found, "/named/explicitly");
        assert_int_equal(config_load(&s->c, &s->err), -ENOENT);
        setenv("UNET_CONFIG", "", 1);
        assert_false(config_find(found));
        assert_int_equal(config_load(&s->c, &s->err), 0);
}

static void count_row(void *arg, const char *section, const char *key, const char *value,
                      const char *text)
{
        assert_true(*section && *key && value && *text);
        ++*(int *)arg;
}

/* What config_each() shows can be put into a file and means the same. */
static void rewrite_row(void *arg, const char *section, const char *key, const char *value,
                        const char *text)
{
        char *out = arg;

        sprintf(out + strlen(out), "[%s]\n%s = %s\n", section, key, value);
}

static void what_it_shows_it_reads(void **state)
{
        struct scratch *s = *state;
        char text[4096] = "";
        int n = 0;

        s->c.idle_s = 77;
        strcpy(s->c.log, "/var/log/unetd");
        s->c.per_uid.leases = 5;
        s->c.iface[2] = (struct unetd_iface_config){.name = "rxe0",
                                                    .addr = 0xc6336501,
                                                    .prefix = 24,
                                                    .provider = IFACE_VERBS,
                                                    .checksum = 1,
                                                    .pinned_mb = 5,
                                                    .silence_s = 9};
        s->c.iface[0] = (struct unetd_iface_config){.name = "eth1",
                                                    .addr = 0xc0000201,
                                                    .gateway = 0xc00002fe,
                                                    .prefix = 24,
                                                    .mode = IFACE_NATIVE,
                                                    .queue = 2,
                                                    .metric = 7,
                                                    .probe = IFACE_PROBE_FULL,
                                                    .check = IFACE_CHECK_NO};
        s->c.route[0] = (struct route){.dst = 0x0a000000,
                                       .prefix = 8,
                                       .gateway = 0xc0000203,
                                       .metric = 5,
                                       .mtu = 1400,
                                       .src = 0xc0000201,
                                       .ifindex = 1};
        s->c.route[1] =
                (struct route){.gateway = 0xc6336402, .ifindex = 2, .flags = ROUTE_F_ONLINK};
        s->c.nroutes = 2;
        s->c.neigh[0] = (struct netconf_neigh){0xc0000209, 1, {2, 0, 0, 0, 0xab, 9}};
        s->c.nneighs = 1;
        s->c.rule[0] = (struct rule){.name = "web",
                                     .program = "/usr/sbin/nginx",
                                     .addr = 0x7f000000,
                                     .prefix = 8,
                                     .proto = 6,
                                     .role = RULE_LISTENS,
                                     .carrier = RULE_UNET,
                                     .port_low = 80,
                                     .port_high = 443};
        s->c.rule[1] = (struct rule){.name = "all the rest",
                                     .role = RULE_BOTH,
                                     .carrier = RULE_KERNEL,
                                     .port_high = 65535};
        s->c.nrules = 2;
        s->c.iface[1] =
                (struct unetd_iface_config){.name = "eth2", .addr = 0xc6336401, .prefix = 32};
        s->c.nifaces = 3;
        config_each(&s->c, count_row, &n);
        assert_true(n > 10);
        config_each(&s->c, rewrite_row, text);
        struct unetd_config want = s->c;
        s->c = defaults;
        assert_int_equal(read_text(s, text), 0);
        assert_memory_equal(&s->c, &want, sizeof want);
}

static void knows_interfaces(void **state)
{
        struct scratch *s = *state;
        const struct unetd_iface_config *i = s->c.iface;

        assert_int_equal(
                read_text(s, "[interface eth1]\naddress = 192.0.2.1/24\ngateway = 192.0.2.254\n"
                             "[interface veth0]\nmode = generic\nprovider = packet\nqueue = "
                             "3\naddress = 198.51.100.7/32\n"
                             "[interface veth1]\nmode = tcx\naddress = 198.51.100.9/32\n"),
                0);
        assert_int_equal(s->c.nifaces, 3);
        assert_int_equal(i[2].mode, IFACE_TCX);
        assert_string_equal(i[0].name, "eth1");
        assert_int_equal(i[0].addr, 0xc0000201);
        assert_int_equal(i[0].prefix, 24);
        assert_int_equal(i[0].gateway, 0xc00002fe);
        assert_int_equal(i[0].mode, IFACE_AUTO);
        assert_string_equal(i[1].name, "veth0");
        assert_int_equal(i[1].mode, IFACE_GENERIC);
        assert_int_equal(i[0].provider, IFACE_BEST);
        assert_int_equal(i[1].provider, IFACE_PACKET);
        assert_int_equal(i[1].queue, 3);
        s->c = defaults;
}

static void knows_the_older_name_of_a_provider(void **state)
{
        struct scratch *s = *state;
        const struct unetd_iface_config *i = s->c.iface;

        s->c = defaults;
        assert_int_equal(
                read_text(s,
                          "[interface a]\naddress = 192.0.2.1/24\nlink = packet\n"
                          "[interface b]\naddress = 198.51.100.7/24\nprovider = verbs\nlink = xdp\n"
                          "[interface c]\naddress = 203.0.113.7/24\nlink = xdp\n"
                          "[interface d]\naddress = 203.0.112.7/24\nlink = auto\n"),
                0);
        assert_int_equal(i[0].provider, IFACE_PACKET);
        assert_int_equal(i[1].provider, IFACE_VERBS);
        assert_int_equal(i[2].provider, IFACE_XDP);
        assert_int_equal(i[3].provider, IFACE_BEST);
        assert_true(s->c.said_link);
        s->c = defaults;
        refuses(s, "[interface eth1]\nlink = verbs\n", 2, "\"link\" wants auto, xdp or packet");
        s->c = defaults;
}

static void knows_interfaces_over_verbs(void **state)
{
        struct scratch *s = *state;
        const struct unetd_iface_config *i = s->c.iface;

        assert_int_equal(
                read_text(s, "[interface rxe0]\nprovider = verbs\naddress = 192.0.2.1/24\n"
                             "checksum = no\npinned = 16\nsilence = 30\n"
                             "[interface rxe1]\nprovider = verbs\naddress = 198.51.100.7/24\n"),
                0);
        assert_int_equal(i[0].provider, IFACE_VERBS);
        assert_int_equal(i[0].checksum, 0);
        assert_int_equal(i[0].pinned_mb, 16);
        assert_int_equal(i[0].silence_s, 30);
        assert_int_equal(i[1].checksum, 1);
        assert_int_equal(i[1].pinned_mb, UNETD_PINNED_MB);
        assert_int_equal(i[1].silence_s, UNETD_SILENCE_S);
        s->c = defaults;
}

static void knows_routes_and_neighbours(void **state)
{
        struct scratch *s = *state;
        const struct route *r = s->c.route;

        assert_int_equal(
                read_text(s, "[interface eth1]\nroute = 10.0.0.0/8 via 192.0.2.3 metric 5 src "
                             "192.0.2.1 mtu 1400\n"
                             "address = 192.0.2.1/24\nroute = default via 192.0.2.4\n"
                             "neighbour = 192.0.2.9 02:00:00:00:aB:09\n"
                             "[interface eth2]\naddress = 198.51.100.7/32\nroute=203.0.113.5\n"
                             "route = default via 198.51.100.8 onlink metric 9\n"),
                0);
        assert_int_equal(s->c.nroutes, 4);
        assert_int_equal(r[0].dst, 0x0a000000);
        assert_int_equal(r[0].prefix, 8);
        assert_int_equal(r[0].gateway, 0xc0000203);
        assert_int_equal(r[0].src, 0xc0000201);
        assert_int_equal(r[0].metric, 5);
        assert_int_equal(r[0].mtu, 1400);
        assert_int_equal(r[0].ifindex, 1);
        assert_int_equal(r[1].prefix, 0);
        assert_int_equal(r[1].gateway, 0xc0000204);
        assert_int_equal(r[2].prefix, 32);
        assert_int_equal(r[2].gateway, 0);
        assert_int_equal(r[2].ifindex, 2);
        assert_int_equal(r[3].flags, ROUTE_F_ONLINK);
        assert_int_equal(s->c.nneighs, 1);
        assert_int_equal(s->c.neigh[0].addr, 0xc0000209);
        assert_int_equal(s->c.neigh[0].ifindex, 1);
        assert_int_equal(s->c.neigh[0].mac[4], 0xab);
        s->c = defaults;
}

#define ETH1 "[interface eth1]\naddress = 192.0.2.1/24\ngateway = 192.0.2.254\n"

static void refuses_wrong_routes(void **state)
{
        struct scratch *s = *state;

        refuses(s, ETH1 "route = 10.0.0.1/8\n", 4,
                "\"route\" wants a prefix without bits behind it, as in 192.0.2.0/24, or "
                "\"default\"");
        refuses(s, ETH1 "route =\n", 4,
                "\"route\" wants a prefix without bits behind it, as in 192.0.2.0/24, or "
                "\"default\"");
        refuses(s, ETH1 "route = 10.0.0.0/8 via\n", 4,
                "\"route\" wants an IPv4 address behind \"via\"");
        refuses(s, ETH1 "route = 10.0.0.0/8 via 192.0.2.3 mtu 67\n", 4,
                "\"route\" wants a number from 68 to 65535 behind \"mtu\"");
        refuses(s, ETH1 "route = 10.0.0.0/8 via 192.0.2.3 metric -1\n", 4,
                "\"route\" wants a number behind \"metric\"");
        refuses(s, ETH1 "route = 10.0.0.0/8 by 192.0.2.3\n", 4,
                "\"route\" knows via, dev, metric, src, mtu and onlink behind the prefix");
        refuses(s, ETH1 "route = 10.0.0.0/8 dev eth2\n", 4,
                "\"route\" is of its section's interface, and takes no \"dev\"");
        refuses(s, ETH1 "mode = auto\nroute = 10.0.0.0/8 via 192.0.3.3\n", 5,
                "\"route\" has a gateway outside the interface's networks");
        refuses(s, ETH1 "route = 10.0.0.0/8 via 192.0.2.1\n", 4,
                "\"route\" has a gateway that is no other host's address");
        refuses(s, ETH1 "route = 10.0.0.0/8 src 192.0.2.5\n", 4,
                "\"route\" has a source that is no interface's address");
        refuses(s, ETH1 "route = 10.0.0.0/8\nroute = 10.0.0.0/8\n", 5,
                "\"route\" is there already");
        refuses(s, ETH1 "route = default via 192.0.2.254\n", 4, "\"route\" is there already");
        refuses(s, ETH1 "check = maybe\n", 4, "\"check\" wants auto, yes or no");
        refuses(s, ETH1 "probe = often\n", 4, "\"probe\" wants quick, full or no");
        refuses(s, ETH1 "metric = x\n", 4, "\"metric\" wants a number from 0 to 4294967295");
}

static void refuses_wrong_neighbours(void **state)
{
        struct scratch *s = *state;

        refuses(s, ETH1 "neighbour = 192.0.2.300 02:00:00:00:00:01\n", 4,
                "\"neighbour\" wants an IPv4 address");
        refuses(s, ETH1 "neighbour = 192.0.2.3 03:00:00:00:00:01\n", 4,
                "\"neighbour\" wants a link address of one host behind it, as in "
                "02:00:00:12:34:56");
        refuses(s, ETH1 "neighbour = 192.0.2.3 02:00:00:00:00\n", 4,
                "\"neighbour\" wants a link address of one host behind it, as in "
                "02:00:00:12:34:56");
        refuses(s, ETH1 "neighbour = 192.0.3.3 02:00:00:00:00:01\n", 4,
                "\"neighbour\" is no other host on the interface's network");
        refuses(s, ETH1 "neighbour = 192.0.2.1 02:00:00:00:00:01\n", 4,
                "\"neighbour\" is no other host on the interface's network");
}

static void knows_rules(void **state)
{
        struct scratch *s = *state;
        const struct rule *r = s->c.rule;

        assert_int_equal(
                read_text(
                        s,
                        "[rule b]\ncarrier = kernel\nport = 80\n[rule a]\nprogram = nginx\ncarrier "
                        "= unet\n"
                        "protocol = udp\nrole = connect\naddress = 10.0.0.0/8\nport = 8000-8099\n"),
                0);
        assert_int_equal(s->c.nrules, 2);
        assert_string_equal(r[0].name, "b"); /* in the file's order */
        assert_true(r[0].role == RULE_BOTH && r[0].proto == 0 && r[0].prefix == 0 &&
                    r[0].port_low == 80 && r[0].port_high == 80);
        assert_int_equal(r[0].carrier, RULE_KERNEL);
        assert_string_equal(r[1].program, "nginx");
        assert_true(r[1].role == RULE_CONNECTS && r[1].proto == 17 && r[1].addr == 0x0a000000 &&
                    r[1].prefix == 8);
        assert_true(r[1].port_low == 8000 && r[1].port_high == 8099 && r[1].carrier == RULE_UNET);
}

static void refuses_wrong_rules(void **state)
{
        static const char address[] =
                "\"address\" wants an address, as 127.0.0.1, a network, as 192.0.2.0/24, or any";
        static const char port[] =
                "\"port\" wants a number from 1 to 65535, two of them as in 8000-8099, or any";
        struct scratch *s = *state;

        refuses(s, "[rule]\ncarrier = kernel\n", 2, "there is no section [rule]");
        refuses(s, "[rule ]\ncarrier = kernel\n", 2, "\"\" is not a rule's name: 1 to 23 bytes");
        refuses(s, "[rule a name that is a bit long]\n", 1,
                "\"a name that is a bit long\" is not a rule's name: 1 to 23 bytes");
        refuses(s, "[daemon]\n[rule a]\nport = 80\n", 2, "[rule a] has no \"carrier\"");
        refuses(s, "[daemon]\n[rule a]\n", 2, "[rule a] has no \"carrier\"");
        refuses(s, "[rule a]\ncarrier = linux\n", 2, "\"carrier\" is unet or kernel");
        refuses(s, "[rule a]\ncarrier = unet\ncarrier = unet\n", 3, "\"carrier\" is set twice");
        refuses(s, "[rule a]\nports = 80\n", 2, "unknown key \"ports\" in [rule a]");
        refuses(s, "[rule a]\nrole = server\n", 2, "\"role\" is listen, connect or both");
        refuses(s, "[rule a]\nprotocol = sctp\n", 2, "\"protocol\" is tcp, udp or both");
        refuses(s, "[rule a]\nprogram = bin/x\n", 2,
                "\"program\" wants a file's name alone, or its whole path");
        refuses(s, "[rule a]\naddress = here\n", 2, address);
        refuses(s, "[rule a]\naddress = 10.0.0.0/33\n", 2, address);
        refuses(s, "[rule a]\naddress = 10.0.0.0/0\n", 2, address);
        refuses(s, "[rule a]\naddress = ::1\n", 2, address);
        refuses(s, "[rule a]\naddress = 0.0.0.0\n", 2,
                "\"address\" wants no address for all of them: that is any");
        refuses(s, "[rule a]\naddress = 10.0.0.1/8\n", 2, "\"address\" has bits behind its prefix");
        refuses(s, "[rule a]\nport = 0\n", 2, port);
        refuses(s, "[rule a]\nport = 65536\n", 2, port);
        refuses(s, "[rule a]\nport = 80-79\n", 2, port);
        refuses(s, "[rule a]\nport = 80-\n", 2, port);
        refuses(s, "[rule a]\nport = 80x\n", 2, port);
}

/* The first one that fits holds; who cannot tell the program holds what is said of all of them. */
static void the_first_rule_that_fits_holds(void **state)
{
        struct scratch *s = *state;
        struct rule_asked q = {.role = RULE_LISTENS,
                               .proto = 6,
                               .addr = 0x7f000001,
                               .port = 80,
                               .program = {"/usr/sbin/nginx", NULL}};

        assert_int_equal(read_text(s, "[rule 1]\nprogram = nginx\nport = 80\ncarrier = unet\n"
                                      "[rule 2]\nrole = listen\naddress = 127.0.0.0/8\nport = "
                                      "80-90\ncarrier = kernel\n"
                                      "[rule 3]\nprogram = /bin/x\ncarrier = kernel\n"),
                         0);
        assert_null(rule_against(s->c.rule, s->c.nrules, &q));
        assert_null(rule_against_all(s->c.rule, s->c.nrules, &q));
        q.program[0] = "/usr/sbin/nginx2";
        assert_ptr_equal(rule_against(s->c.rule, s->c.nrules, &q), &s->c.rule[1]);
        q.port = 81;
        assert_ptr_equal(rule_against_all(s->c.rule, s->c.nrules, &q), &s->c.rule[1]);
        q.role = RULE_CONNECTS;
        assert_null(rule_against(s->c.rule, s->c.nrules, &q));
        q.program[0] = "/bin/x";
        assert_ptr_equal(rule_against(s->c.rule, s->c.nrules, &q), &s->c.rule[2]);
        assert_null(rule_against_all(s->c.rule, s->c.nrules, &q));
        /* On all addresses. */
        q = (struct rule_asked){.role = RULE_LISTENS, .proto = 6, .addr = 0, .port = 80};
        assert_null(rule_against(s->c.rule, s->c.nrules, &q));
}

static void refuses_sections_without_a_key_too(void **state)
{
        struct scratch *s = *state;

        refuses(s, "[daemon]\n\n[bogus]\n", 3, "there is no section [bogus]");
        refuses(s, "\xEF\xBB\xBF[bogus]\n", 1, "there is no section [bogus]");
        refuses(s, "[interface a/b]\n", 1, "\"a/b\" is not an interface's name");
        refuses(s, "[interface ]\n", 1, "\"\" is not an interface's name");
}

static void refuses_wrong_interfaces(void **state)
{
        struct scratch *s = *state;

        refuses(s, "[interface eth1]\naddress = 192.0.2.1\n", 2,
                "\"address\" wants an address and a prefix, as in 192.0.2.1/24");
        refuses(s, "[interface eth1]\naddress = 224.0.2.1/24\n", 2,
                "\"address\" wants an address and a prefix, as in 192.0.2.1/24");
        refuses(s, "[interface eth1]\naddress = 192.0.2.1/33\n", 2,
                "\"address\" wants an address and a prefix, as in 192.0.2.1/24");
        refuses(s, "[interface eth1]\nadress = 192.0.2.1/24\n", 2,
                "unknown key \"adress\" in [interface eth1]");
        refuses(s, "[interface a name too long]\nqueue = 0\n", 2,
                "\"a name too long\" is not an interface's name");
        refuses(s, "[interface eth1]\nmode = fast\n", 2,
                "\"mode\" wants auto, native, generic or tcx");
        refuses(s, "[interface eth1]\nchecksum = 1\n", 2, "\"checksum\" wants yes or no");
        refuses(s, "[interface eth1]\npinned = many\n", 2,
                "\"pinned\" wants a number from 0 to 1048576");
        refuses(s,
                "[interface eth1]\nprovider = verbs\naddress = 192.0.2.1/24\ngateway = 192.0.2.2\n",
                1, "[interface eth1] has a gateway: hosts are met over verbs on their own network");
        refuses(s, "[interface eth1]\nprovider = wire\n", 2,
                "\"provider\" wants auto, xdp, packet or verbs");
        refuses(s, "[interface eth1]\nqueue = -1\n", 2, "\"queue\" wants a number from 0 to 4095");
        refuses(s, "[interface eth1]\nqueue = 1\nqueue = 1\n", 3, "\"queue\" is set twice");
        refuses(s, "\n[interface eth1]\nqueue = 1\n", 2, "[interface eth1] has no address");
        refuses(s, "[daemon]\n [interface eth1] ; later\n", 2, "[interface eth1] has no address");
        refuses(s, "[interface eth1]\naddress = 192.0.2.0/24\n", 1,
                "[interface eth1] has its network's address, not a host's");
        refuses(s, "[interface eth1]\naddress = 192.0.2.255/24\n", 1,
                "[interface eth1] has its network's broadcast address, not a host's");
        refuses(s, "[interface eth1]\naddress = 192.0.2.1/24\ngateway = 192.0.3.1\n", 1,
                "[interface eth1] has a gateway outside its network");
        refuses(s, "[interface a]\naddress = 192.0.2.1/24\n[interface b]\naddress = 192.0.2.1/16\n",
                3, "[interface b] has another one's address");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_scratch, remove_scratch)
        const struct CMUnitTest tests[] = {
                TEST(only_lines_of_text_are_read),
                TEST(sets_what_the_file_says),
                TEST(refuses_what_it_does_not_know),
                TEST(refuses_values_out_of_range),
                TEST(reports_the_first_of_several),
                TEST(says_when_a_file_is_not_there),
                TEST(refuses_what_is_no_file),
                TEST(looks_in_its_places_in_order),
                TEST(what_it_shows_it_reads),
                TEST(knows_interfaces),
                TEST(refuses_wrong_interfaces),
                TEST(knows_routes_and_neighbours),
                TEST(refuses_wrong_routes),
                TEST(refuses_wrong_neighbours),
                TEST(knows_the_older_name_of_a_provider),
                TEST(knows_rules),
                TEST(refuses_wrong_rules),
                TEST(the_first_rule_that_fits_holds),
                TEST(knows_interfaces_over_verbs),
                TEST(refuses_sections_without_a_key_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
