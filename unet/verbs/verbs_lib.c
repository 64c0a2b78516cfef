/*
 * libibverbs, when it is asked for the first time and if it is there: no library or program of ours
 * needs it to start.
 *
 * The calls of <infiniband/verbs.h> that are not inline, under their own names; the rest are inline
 * in that header and go through the device's own table. Without the library there is no device, so
 * that the first of them says so and none of the others is ever called.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#undef ibv_reg_mr
#undef ibv_query_port
#undef ibv_get_device_list

#define HIDDEN __attribute__((visibility("hidden")))

/* result, name, parameters, arguments */
#define CALLS(X)                                                                                   \
        X(void, ibv_free_device_list, (struct ibv_device * *list), (list))                         \
        X(const char *, ibv_get_device_name, (struct ibv_device * d), (d))                         \
        X(struct ibv_context *, ibv_open_device, (struct ibv_device * d), (d))                     \
        X(int, ibv_close_device, (struct ibv_context * c), (c))                                    \
        X(int, ibv_get_async_event, (struct ibv_context * c, struct ibv_async_event * e), (c, e))  \
        X(void, ibv_ack_async_event, (struct ibv_async_event * e), (e))                            \
        X(int, ibv_query_device, (struct ibv_context * c, struct ibv_device_attr * a), (c, a))     \
        X(int, ibv_query_port,                                                                     \
          (struct ibv_context * c, uint8_t port, struct _compat_ibv_port_attr * a), (c, port, a))  \
        X(ssize_t, _ibv_query_gid_table,                                                           \
          (struct ibv_context * c, struct ibv_gid_entry * e, size_t max, uint32_t flags,           \
           size_t size),                                                                           \
          (c, e, max, flags, size))                                                                \
        X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * c), (c))                            \
        X(int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd))                                         \
        X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *p, size_t n, int access),        \
          (pd, p, n, access))                                                                      \
        X(struct ibv_mr *, ibv_reg_mr_iova2,                                                       \
          (struct ibv_pd * pd, void *p, size_t n, uint64_t at, unsigned int access),               \
          (pd, p, n, at, access))                                                                  \
        X(int, ibv_dereg_mr, (struct ibv_mr * mr), (mr))                                           \
        X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * c), (c))       \
        X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel * ch), (ch))                     \
        X(struct ibv_cq *, ibv_create_cq,                                                          \
          (struct ibv_context * c, int n, void *user, struct ibv_comp_channel *ch, int vector),    \
          (c, n, user, ch, vector))                                                                \
        X(int, ibv_destroy_cq, (struct ibv_cq * cq), (cq))                                         \
        X(int, ibv_get_cq_event, (struct ibv_comp_channel * ch, struct ibv_cq * *cq, void **user), \
          (ch, cq, user))                                                                          \
        X(void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int n), (cq, n))                  \
        X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * a),       \
          (pd, a))                                                                                 \
        X(int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * a, int mask),              \
          (qp, a, mask))                                                                           \
        X(int, ibv_destroy_qp, (struct ibv_qp * qp), (qp))                                         \
        X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd * pd, struct ibv_ah_attr * a), (pd, a))   \
        X(int, ibv_destroy_ah, (struct ibv_ah * ah), (ah))

#define POINTER(result, name, parameters, arguments) result(*name) parameters;
static struct {
        CALLS(POINTER)
        POINTER(struct ibv_device **, ibv_get_device_list, (int *n), )
        bool there;
} lib;

static void load(void)
{
        void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

        if (so == NULL)
                return;
        lib.there = true;
#define FIND(result, name, parameters, arguments) \
        *(void **)&lib.name = dlsym(so, #name);   \
        lib.there &= lib.name != NULL;
        CALLS(FIND)
        FIND(, ibv_get_device_list, , )
}

static bool there(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, load);
        return lib.there;
}

/* ENOSYS is what the library itself says where the kernel has no RDMA. */
static struct ibv_device **no_devices(int *n)
{
        *n = 0;
        errno = ENOSYS;
        return NULL;
}

#define CALL(result, name, parameters, arguments) \
        HIDDEN result name parameters             \
        {                                         \
                return (lib.name)arguments;       \
        }
CALLS(CALL)

/* The one that comes first. */
HIDDEN struct ibv_device **ibv_get_device_list(int *n)
{
        return there() ? lib.ibv_get_device_list(n) : no_devices(n);
}
