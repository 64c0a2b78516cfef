/*
 * What a program will be, looked at before it is exec'd: whether the library will be in it and see
 * its calls. It will not where no loader is asked for or the loader ignores LD_PRELOAD, nor in what
 * Go's own compiler makes, which makes its calls without libc.
 */
#include "sock/shim/process.h"
#include "sock/shim/shim.h"

#include <elf.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPTS_MOST 5 /* interpreters that are scripts: fs/exec.c */
#define HEADERS_MOST 64
#define DYNAMIC_MOST 128
#define NOTES_MOST   1024 /* bytes */
#define PADDED(n)    (((long)(n) + 3) & ~3l)

static bool has_go_note(int fd, const Elf64_Phdr *ph)
{
        _Alignas(Elf64_Nhdr) char text[NOTES_MOST];
        long n = sys4(SYS_pread64, fd, text, MIN(ph->p_filesz, sizeof(text)), ph->p_offset);
        const Elf64_Nhdr *note;

        for (long at = 0; at + (long)sizeof(*note) + 4 <= n;
             at += (long)sizeof(*note) + PADDED(note->n_namesz) + PADDED(note->n_descsz)) {
                note = (const void *)&text[at];
                if (note->n_namesz == 4 && memcmp(note + 1, "Go", 3) == 0)
                        return true;
        }
        return false;
}

/* One without a loader is linked statically, or is the loader. */
static bool is_static_pie(int fd, const Elf64_Phdr *ph)
{
        Elf64_Dyn d[DYNAMIC_MOST];
        long n = sys4(SYS_pread64, fd, d, MIN(ph->p_filesz, sizeof(d)), ph->p_offset) /
                 (long)sizeof(d[0]);

        for (long i = 0; i < n; i++)
                if (d[i].d_tag == DT_FLAGS_1)
                        return d[i].d_un.d_val & DF_1_PIE;
        return false;
}

static bool elf_is_deaf(int fd, const Elf64_Ehdr *eh)
{
        Elf64_Phdr ph[HEADERS_MOST];
        long n = sys4(SYS_pread64, fd, ph, MIN(eh->e_phnum * sizeof(ph[0]), sizeof(ph)),
                      eh->e_phoff) /
                 (long)sizeof(ph[0]);
        bool loaded = false, deaf = eh->e_type == ET_EXEC;

        if (eh->e_ident[EI_CLASS] != ELFCLASS64)
                return true;
        for (long i = 0; i < n; i++) {
                if (ph[i].p_type == PT_NOTE && has_go_note(fd, &ph[i]))
                        return true;
                loaded |= ph[i].p_type == PT_INTERP;
                deaf |= ph[i].p_type == PT_DYNAMIC && is_static_pie(fd, &ph[i]);
        }
        return deaf && !loaded;
}

/* The loader is then a careful one (AT_SECURE). */
static bool changes_user(int fd)
{
        struct stat st;

        return sys2(SYS_fstat, fd, &st) == 0 &&
               (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
                ((st.st_mode & S_ISGID) && st.st_gid != getegid()));
}

/* "#! interpreter argument\n": cut out where it stands. NULL: no such line. */
static const char *interpreter(char *line, long n)
{
        char *s = line + 2;

        if (n < 3 || line[0] != '#' || line[1] != '!')
                return NULL;
        line[n] = 0;
        s += strspn(s, " \t");
        s[strcspn(s, " \t\n")] = 0;
        return s;
}

static int open_at(int dir, const char *path)
{
        return (int)sys4(SYS_openat, dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
}

bool image_is_deaf(int dir, const char *path)
{
        union {
                Elf64_Ehdr eh;
                char line[PATH_MAX];
        } head;
        bool deaf = false;

        for (int scripts = 0; path && scripts <= SCRIPTS_MOST; scripts++) {
                int fd = open_at(dir, path);
                long n = fd < 0 ? -1 : sys4(SYS_pread64, fd, &head, sizeof(head) - 1, 0);

                path = NULL;
                if (n >= (long)sizeof(head.eh) && memcmp(&head.eh, ELFMAG, SELFMAG) == 0)
                        deaf = changes_user(fd) || elf_is_deaf(fd, &head.eh);
                else
                        path = interpreter(head.line, n);
                if (fd >= 0)
                        sys1(SYS_close, fd);
        }
        return deaf;
}

bool image_searched_is_deaf(const char *file)
{
        const char *path = getenv("PATH"), *end;
        char name[PATH_MAX];

        if (strchr(file, '/') || !path)
                return image_is_deaf(AT_FDCWD, file);
        for (;; path = end + 1) {
                end = strchrnul(path, ':');
                snprintf(name, sizeof(name), "%.*s%s%s", (int)(end - path), path,
                         end > path ? "/" : "", file);
                if (access(name, X_OK) == 0 || !*end)
                        return image_is_deaf(AT_FDCWD, name);
        }
}
