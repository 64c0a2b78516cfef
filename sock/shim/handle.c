/*
 * Functions that are found past the order of libraries: by a handle of libc (dlsym(), Python's
 * ctypes, JNA), or by a library that was loaded with RTLD_DEEPBIND and so is bound to libc before
 * all others. They are answered with our versions.
 *
 * dlmopen() loads a second libc, with an errno of its own: its functions cannot be answered with
 * ours. From then on new sockets are the kernel's, which all can use.
 *
 * The calls go on to libc's by a jump (jump.S), because libc goes by who calls: RTLD_NEXT is what
 * comes after the caller, and a library is searched for where the caller says.
 */
#include "sock/shim/real.h"

#include <dlfcn.h>
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/sys.h"
#include "sock/shim/handle.h"

#define HOOK(ret, name, params) (void *)h_##name,
static void *const ours[REAL_COUNT] = {
#include "sock/shim/hooks.def"
};

static _Atomic bool second_libc;
static _Atomic bool deep_loaded; /* since libraries were looked at: they may be bound past us */

/* ---- by a handle ---- */

static const void *object_of(const void *p)
{
        Dl_info info;

        return dladdr(p, &info) != 0 ? info.dli_fbase : NULL;
}

static bool is_libcs(const void *p)
{
        return object_of(p) == object_of((const void *)gnu_get_libc_version);
}

/* A library behind us that takes over the same call would come back to us by what it finds. */
static bool would_come_back(enum real_index i, const void *caller)
{
        return object_of(caller) == object_of(real_get(i));
}

/* version: NULL, or the one that is asked for. */
static void *found_by_handle(void *handle, const char *name, const char *version, enum real_index i,
                             const void *caller)
{
        void *p = version ? real_dlvsym()(handle, name, version) : real_dlsym()(handle, name);

        return p && is_libcs(p) && !would_come_back(i, caller) ? ours[i] : p;
}

/* ---- bound past us ---- */

#if defined(__x86_64__)
#define R_FUNCTION R_X86_64_JUMP_SLOT
#define R_POINTER  R_X86_64_GLOB_DAT
#define R_WORD     R_X86_64_64
#else
#define R_FUNCTION R_AARCH64_JUMP_SLOT
#define R_POINTER  R_AARCH64_GLOB_DAT
#define R_WORD     R_AARCH64_ABS64
#endif

/* Looked up before: who walks the list of libraries must not ask for symbols. */
struct names {
        /* libc's; what a library is bound to otherwise. */
        void *libcs[REAL_COUNT], *first[REAL_COUNT];
        uintptr_t low, high; /* of libc's */
};

struct object {
        uintptr_t base, low, high;    /* what it is loaded at; its own addresses */
        uintptr_t sealed, sealed_end; /* what is read-only once it is bound */
        const Elf64_Sym *symbols;
        const char *strings;
        const Elf64_Rela *rela[2];
        size_t nrela[2];
        const struct names *names;
};

/* The loader has made most addresses of a dynamic section absolute, not those of what the
 * kernel maps. */
static uintptr_t address(const struct object *o, Elf64_Addr a)
{
        return a < o->base ? o->base + a : a;
}

static void read_dynamic(struct object *o, const Elf64_Dyn *d)
{
        for (; d->d_tag != DT_NULL; d++) {
                switch (d->d_tag) {
                case DT_SYMTAB:
                        o->symbols = (const Elf64_Sym *)address(o, d->d_un.d_ptr);
                        break;
                case DT_STRTAB:
                        o->strings = (const char *)address(o, d->d_un.d_ptr);
                        break;
                case DT_RELA:
                        o->rela[0] = (const Elf64_Rela *)address(o, d->d_un.d_ptr);
                        break;
                case DT_RELASZ:
                        o->nrela[0] = d->d_un.d_val / sizeof(Elf64_Rela);
                        break;
                case DT_JMPREL:
                        o->rela[1] = (const Elf64_Rela *)address(o, d->d_un.d_ptr);
                        break;
                case DT_PLTRELSZ:
                        o->nrela[1] = d->d_un.d_val / sizeof(Elf64_Rela);
                        break;
                default:
                        break;
                }
        }
}

static void read_object(struct object *o, const struct dl_phdr_info *info)
{
        const uintptr_t page = (uintptr_t)getpagesize() - 1;
        const Elf64_Phdr *ph = info->dlpi_phdr;

        for (int i = 0; i < info->dlpi_phnum; i++) {
                uintptr_t at = info->dlpi_addr + ph[i].p_vaddr;

                if (ph[i].p_type == PT_LOAD) {
                        o->low = o->high == 0 ? at : MIN(o->low, at);
                        o->high = MAX(o->high, at + ph[i].p_memsz);
                } else if (ph[i].p_type == PT_GNU_RELRO) {
                        o->sealed = at & ~page;
                        o->sealed_end = (at + ph[i].p_memsz) & ~page; /* as the loader does */
                } else if (ph[i].p_type == PT_DYNAMIC) {
                        read_dynamic(o, (const Elf64_Dyn *)at);
                }
        }
}

static void put(const struct object *o, void **slot, void *to)
{
        bool sealed = (uintptr_t)slot >= o->sealed && (uintptr_t)slot < o->sealed_end;

        if (sealed &&
            sys3(SYS_mprotect, o->sealed, o->sealed_end - o->sealed, PROT_READ | PROT_WRITE) < 0)
                return;
        __atomic_store_n(slot, to, __ATOMIC_RELEASE);
        if (sealed)
                sys3(SYS_mprotect, o->sealed, o->sealed_end - o->sealed, PROT_READ);
}

/* A slot holds libc's function, or the way to the loader where it has not been used yet. Few do:
 * the name is asked for last. */
static void rebind(const struct object *o, const Elf64_Rela *r)
{
        const Elf64_Sym *sym = &o->symbols[ELF64_R_SYM(r->r_info)];
        void **slot = (void **)(o->base + r->r_offset);
        uint32_t type = ELF64_R_TYPE(r->r_info);
        bool unused, libcs;
        int i;

        if ((type != R_FUNCTION && type != R_POINTER && type != R_WORD) ||
            sym->st_shndx != SHN_UNDEF)
                return;
        unused = type == R_FUNCTION && (uintptr_t)*slot >= o->low && (uintptr_t)*slot < o->high;
        libcs = (uintptr_t)*slot >= o->names->low && (uintptr_t)*slot <= o->names->high;
        i = unused || libcs ? real_index_of(o->strings + sym->st_name) : -1;
        if (i < 0)
                return;
        if (*slot == o->names->libcs[i])
                put(o, slot, ours[i]);
        else if (unused && o->names->first[i])
                put(o, slot, o->names->first[i]);
}

static int rebind_object(struct dl_phdr_info *info, size_t size, void *names)
{
        struct object o = {.base = info->dlpi_addr, .names = names};

        read_object(&o, info);
        if ((uintptr_t)ours[0] >= o.low && (uintptr_t)ours[0] < o.high)
                return 0;
        for (int t = 0; t < 2 && o.symbols && o.strings; t++)
                for (size_t k = 0; o.rela[t] && k < o.nrela[t]; k++)
                        rebind(&o, &o.rela[t][k]);
        return 0;
}

static void rebind_all(void)
{
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        struct names n = {.low = UINTPTR_MAX};

        if (!libc)
                return;
        for (int i = 0; i < REAL_COUNT; i++) {
                n.libcs[i] = real_dlsym()(libc, real_name(i));
                n.first[i] = real_dlsym()(RTLD_DEFAULT, real_name(i));
                if (n.libcs[i]) {
                        n.low = MIN(n.low, (uintptr_t)n.libcs[i]);
                        n.high = MAX(n.high, (uintptr_t)n.libcs[i]);
                }
        }
        dl_iterate_phdr(rebind_object, &n);
        dlclose(libc);
}

/* ---- the calls, from jump.S ---- */

/* NULL: libc is to be asked. */
static void *lookup(void *handle, const char *name, const char *version, const void *caller)
{
        int i;

        if (atomic_load_explicit(&deep_loaded, memory_order_relaxed) &&
            atomic_exchange(&deep_loaded, false))
                rebind_all();
        i = real_index_of(name);
        return i < 0 ? NULL : found_by_handle(handle, name, version, (enum real_index)i, caller);
}

static bool asks_in_order(const void *handle)
{
        return handle == RTLD_NEXT || handle == RTLD_DEFAULT;
}

/* What it answers, or where to go on. */
UNCHECKED struct handle_answer handle_lookup(void *handle, const char *name, const void *caller)
{
        return (struct handle_answer){asks_in_order(handle) ? NULL
                                                            : lookup(handle, name, NULL, caller),
                                      (void *)real_dlsym()};
}

UNCHECKED struct handle_answer handle_lookup_version(void *handle, const char *name,
                                                     const char *version, const void *caller)
{
        return (struct handle_answer){asks_in_order(handle) ? NULL
                                                            : lookup(handle, name, version, caller),
                                      (void *)real_dlvsym()};
}

/* A program that loads a library looks something up in it before it calls it. */
void *handle_open(int flags)
{
        if (flags & RTLD_DEEPBIND)
                atomic_store(&deep_loaded, true);
        return (void *)REAL(dlopen);
}

void *handle_open_apart(long space)
{
        if (space != LM_ID_BASE)
                atomic_store(&second_libc, true);
        return (void *)REAL(dlmopen);
}

bool handle_has_second_libc(void)
{
        return atomic_load_explicit(&second_libc, memory_order_relaxed);
}
