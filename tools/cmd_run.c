/*
 * unet run: starts a program with the shim in front of its libc. Nothing else happens here: the
 * program is executed in place of this process, with the environment it would have had and a few
 * variables more.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "tools/command.h"
#include "unet/wrap/ni_fault.h"

/* Of this program. Where there is no /proc: as it was called, or found by whoever called it. */
static bool own_path(char path[PATH_MAX])
{
        const char *called = (const char *)getauxval(AT_EXECFN);
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

        if (n <= 0)
                return called != NULL && realpath(called, path) != NULL;
        path[n] = '\0';
        return true;
}

/* The directory of this program's own file, without the slash. */
static bool own_dir(char dir[PATH_MAX])
{
        char *slash;

        if (!own_path(dir))
                return false;
        slash = strrchr(dir, '/');
        if (!slash)
                return false;
        *slash = '\0';
        return true;
}

/* The shim, beside this program as installed (wherever the prefix went) or as built. */
static bool find_shim(char path[PATH_MAX])
{
        static const char *const beside[] = {UNET_BIN_TO_SHIM "/libunet_preload.so",
                                             "../sock/shim/libunet_preload.so"};
        char dir[PATH_MAX], joined[PATH_MAX * 2];

        if (!own_dir(dir))
                return false;
        for (size_t i = 0; i < ARRAY_LEN(beside); i++) {
                snprintf(joined, sizeof joined, "%s/%s", dir, beside[i]);
                if (realpath(joined, path))
                        return true;
        }
        return false;
}

/* In front of what a list of the loader's has already. */
static bool put_first(const char *variable, const char *what)
{
        const char *old = getenv(variable);
        char *value;
        bool done;

        if (!old || !*old)
                return setenv(variable, what, 1) == 0;
        if (asprintf(&value, "%s:%s", what, old) < 0)
                return false;
        done = setenv(variable, value, 1) == 0;
        free(value);
        return done;
}

/* A list of libraries ends at blanks, one of directories does not: from such a path the shim is
 * loaded by its name. */
static bool set_preload(char *shim)
{
        char *name = strrchr(shim, '/') + 1;

        if (!strpbrk(shim, " \t"))
                return put_first("LD_PRELOAD", shim);
        name[-1] = '\0';
        return put_first("LD_LIBRARY_PATH", shim) && put_first("LD_PRELOAD", name);
}

/* A unetd that the program starts sees only UNET_* variables, so the file is named for it. */
static int pass_config(void)
{
        struct unetd_config c = UNETD_CONFIG_DEFAULT;
        struct config_error err;
        char path[CONFIG_PATH_MAX];

        if (!config_find(path))
                return EXIT_DONE;
        if (config_read(path, &c, &err) != 0) {
                config_complain(&err);
                return EXIT_NOTHING;
        }
        return setenv("UNET_CONFIG", path, 1) == 0 ? EXIT_DONE : command_fail("no memory");
}

/* The loader ignores LD_PRELOAD for a program that changes its user. */
static void warn_if_privileged(const char *program)
{
        char path[PATH_MAX];
        const char *dirs = getenv("PATH");
        struct stat st;

        if (strchr(program, '/')) {
                snprintf(path, sizeof path, "%s", program);
        } else {
                for (path[0] = '\0'; dirs && *dirs;
                     dirs += strcspn(dirs, ":"), dirs += *dirs == ':') {
                        snprintf(path, sizeof path, "%.*s/%s", (int)strcspn(dirs, ":"), dirs,
                                 program);
                        if (access(path, X_OK) == 0)
                                break;
                }
        }
        if (stat(path, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)) != 0 &&
            geteuid() != st.st_uid)
                fprintf(stderr,
                        "unet: %s is set-uid or set-gid: it will use the kernel's sockets\n",
                        program);
}

int run_program(char **argv)
{
        char shim[PATH_MAX];

        if (!find_shim(shim))
                return command_fail(
                        "libunet_preload.so is neither installed nor built beside this program");
        if (strpbrk(shim, ":;"))
                return command_fail(
                        "the loader cannot preload from a path with colons or semicolons: %s",
                        shim);
        if (pass_config() != EXIT_DONE)
                return EXIT_NOTHING;
        if (!set_preload(shim))
                return command_fail("no memory");
        warn_if_privileged(argv[0]);
        execvp(argv[0], argv);
        fprintf(stderr, "unet: %s: %s\n", argv[0], strerror(errno));
        return errno == ENOENT ? 127 : 126;
}

static int run(const struct command *cmd, int argc, char **argv)
{
        static const struct option extra[] = {{"fault", required_argument, NULL, 'f'},
                                              {"log", no_argument, NULL, 'l'},
                                              {NULL, 0, NULL, 0}};
        struct fault_params fault;
        int opt;

        while ((opt = command_option(cmd, argc, argv, extra, NULL)) != -1) {
                if (opt == 'f' && fault_parse(optarg, &fault) != 0)
                        return command_usage(cmd, "not a fault: %s", optarg);
                if (opt == 'f' && setenv("UNET_FAULT", optarg, 1) != 0)
                        return command_fail("no memory");
                if (opt == 'l' && setenv("UNET_LOG", "1", 1) != 0)
                        return command_fail("no memory");
        }
        if (optind == argc)
                return command_usage(cmd, "which program?");
        return run_program(argv + optind);
}

const struct command cmd_run = {
        "run",
        "[--fault SPEC] [--log] PROGRAM [ARGUMENT...]",
        "runs a program over the user-level stack",
        "  --fault SPEC   loses, delays or reorders what is sent, as loss=0.01,seed=7 (see "
        "unet(1))\n"
        "  --log          says on standard error which sockets were accelerated, and why not\n"
        "\n"
        "The exit status is the program's; 126: it cannot be run, 127: there is no such program.\n",
        run,
};
