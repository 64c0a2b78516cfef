#include "sock/shim/real.h"

#include <errno.h>
#include <link.h>
#include <string.h>

union real real_libc;

#define HOOK(ret, name, params) #name,
static const char *const names[REAL_COUNT] = {
#include "sock/shim/hooks.def"
};

/* Stands for a call that this libc does not have. */
static long real_missing(void)
{
        errno = ENOSYS;
        return -1;
}

const char *real_name(enum real_index i)
{
        return names[i];
}

int real_index_of(const char *name)
{
        for (int i = 0; i < REAL_COUNT; i++)
                if (names[i][0] == name[0] && strcmp(names[i], name) == 0)
                        return i;
        return -1;
}

/* ---- the first of them, which no call of libc's finds: we have all that look something up ---- */

struct symbols {
        const Elf64_Sym *sym;
        const char *names;
        const uint32_t *hash; /* DT_GNU_HASH: four words, the filter, buckets, chains */
};

UNCHECKED static bool read_symbols(const struct link_map *m, struct symbols *s)
{
        *s = (struct symbols){.sym = NULL};
        for (const Elf64_Dyn *d = m->l_ld; d->d_tag != DT_NULL; d++) {
                /* The loader has made them absolute, but in what the kernel maps. */
                uintptr_t at =
                        d->d_un.d_ptr < m->l_addr ? m->l_addr + d->d_un.d_ptr : d->d_un.d_ptr;

                if (d->d_tag == DT_SYMTAB)
                        s->sym = (const Elf64_Sym *)at;
                else if (d->d_tag == DT_STRTAB)
                        s->names = (const char *)at;
                else if (d->d_tag == DT_GNU_HASH)
                        s->hash = (const uint32_t *)at;
        }
        return s->sym && s->names && s->hash;
}

/* No call of libc's: a sanitizer, which may not be ready, would take it over. */
UNCHECKED static bool same(const char *a, const char *b)
{
        while (*a && *a == *b)
                a++, b++;
        return *a == *b;
}

UNCHECKED static void *symbol_of(const struct link_map *m, const char *name)
{
        const uint32_t *bucket, *chain;
        uint32_t h = 5381, i;
        struct symbols s;

        if (!read_symbols(m, &s))
                return NULL;
        for (const char *c = name; *c; c++)
                h = h * 33 + (uint8_t)*c;
        bucket = s.hash + 4 + 2 * (size_t)s.hash[2];
        chain = bucket + s.hash[0] - s.hash[1];
        for (i = bucket[h % s.hash[0]]; i != 0; i = chain[i] & 1 ? 0 : i + 1)
                if ((chain[i] | 1) == (h | 1) && s.sym[i].st_shndx != SHN_UNDEF &&
                    same(s.names + s.sym[i].st_name, name))
                        return (void *)(m->l_addr + s.sym[i].st_value);
        return NULL;
}

/* As dlsym(RTLD_NEXT) would say it; behind a program that has loaded us itself, any but ours. */
UNCHECKED static void *symbol_behind_us(const char *name)
{
        const struct link_map *m = _r_debug.r_map;
        void *p = NULL;

        while (m && m->l_ld != _DYNAMIC)
                m = m->l_next;
        for (m = m ? m->l_next : NULL; m && !p; m = m->l_next)
                p = symbol_of(m, name);
        for (m = _r_debug.r_map; m && !p; m = m->l_next)
                p = m->l_ld != _DYNAMIC ? symbol_of(m, name) : NULL;
        return p;
}

UNCHECKED real_dlvsym_fn *real_dlvsym(void)
{
        void *p = __atomic_load_n(&real_libc.sym[REAL_dlvsym], __ATOMIC_RELAXED);

        if (unlikely(!p)) {
                p = symbol_behind_us("dlvsym");
                __atomic_store_n(&real_libc.sym[REAL_dlvsym], p, __ATOMIC_RELAXED);
        }
        return (real_dlvsym_fn *)p;
}

/* Every libc has it by the version that its machine began with. */
#if defined(__x86_64__)
#define DLSYM_VERSION "GLIBC_2.2.5"
#else
#define DLSYM_VERSION "GLIBC_2.17"
#endif

UNCHECKED real_dlsym_fn *real_dlsym(void)
{
        void *p = __atomic_load_n(&real_libc.sym[REAL_dlsym], __ATOMIC_RELAXED);

        if (unlikely(!p)) {
                p = real_dlvsym()(RTLD_NEXT, "dlsym", DLSYM_VERSION);
                __atomic_store_n(&real_libc.sym[REAL_dlsym], p, __ATOMIC_RELAXED);
        }
        return (real_dlsym_fn *)p;
}

void *real_lookup(enum real_index i)
{
        int saved = errno;
        void *p = i == REAL_dlsym    ? (void *)real_dlsym()
                  : i == REAL_dlvsym ? (void *)real_dlvsym()
                                     : real_dlsym()(RTLD_NEXT, names[i]);

        if (!p)
                p = (void *)real_missing;
        __atomic_store_n(&real_libc.sym[i], p, __ATOMIC_RELAXED);
        errno = saved;
        return p;
}
