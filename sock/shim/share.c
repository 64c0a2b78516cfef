/*
 * What a socket has become belongs to the socket, not to the process. One that other processes
 * have, or may have (after a fork, in a message, over an exec), has a record in the stack, even
 * while it is undecided. The process that decides says so there (usock_say()). Each call on the
 * socket begins by hearing what was said since. So a socket that is made before a fork may be
 * bound, connected or sent on by either.
 *
 * What is said is this file's byte: the mode, and what the kernel's socket does not tell.
 *
 * One for which there can be no record (no unetd, a limit) is the kernel's from then on, which all
 * processes find as it is. One that became the kernel's while it was shared stays so: others may be
 * in the middle of the kernel's call.
 */
#include "sock/shim/decide.h"
#include "sock/shim/epoll.h"
#include "sock/shim/process.h"
#include "sock/shim/shim.h"

enum {
        SAID_MODE = 7,
        SAID_CONNECTING = 8,
        SAID_BOUND = 16,
        SAID_CONNECTED = 32,
        SAID_OUT = 64,
        SAID_STAMPED = 128
};

void file_say(struct file *f)
{
        int what = f->mode;

        if (!f->shared)
                return;
        what |= f->connecting ? SAID_CONNECTING : 0;
        what |= f->bound ? SAID_BOUND : 0;
        what |= f->connected ? SAID_CONNECTED : 0;
        what |= f->out ? SAID_OUT : 0;
        what |= READ_ONCE(f->stamped) ? SAID_STAMPED : 0;
        f->heard = usock_say(f->us, (uint8_t)what, f->rcvtimeo, f->sndtimeo);
}

/* The kernel's socket under a connection that was accepted here is a stand-in: what is no
 * connection any more needs a real one. */
static void become(struct file *f, uint8_t mode)
{
        if (mode != MODE_TCP && f->placeholder)
                file_materialise(f);
        f->mode = mode;
        if (f->items)
                epoll_file_moved(f);
        f->why = "another process has done so";
        log_decision(f);
}

void file_hear_locked(struct file *f)
{
        uint32_t said = f->shared ? usock_said(f->us) : 0;
        uint8_t what = usock_said_what(said);

        assert(shim_locked());
        if (likely(said == 0 || said == f->heard))
                return;
        if ((what & SAID_MODE) < MODE_KERNEL || (what & SAID_MODE) > MODE_UDP)
                return; /* nobody of us has said so */
        f->heard = said;
        f->connecting = what & SAID_CONNECTING;
        f->bound = what & SAID_BOUND;
        f->connected = what & SAID_CONNECTED;
        f->out = what & SAID_OUT;
        WRITE_ONCE(f->stamped, (what & SAID_STAMPED) != 0);
        usock_said_times(f->us, &f->rcvtimeo, &f->sndtimeo);
        if ((what & SAID_MODE) != f->mode)
                become(f, what & SAID_MODE);
}

void file_hear(struct file *f)
{
        if (likely(usock_said(f->us) == f->heard))
                return;
        pthread_mutex_lock(&shim.lock);
        file_hear_locked(f);
        pthread_mutex_unlock(&shim.lock);
}

struct file *file_enter_shared(int fd, unsigned mode)
{
        struct file *f = file_peek(fd);

        usock_enter();
        if (!__libc_single_threaded) {
                f = file_ref_threaded(fd);
                shim_tls.held = f != NULL;
        }
        if (f)
                file_now(f);
        if (f && f->mode >= mode)
                return f;
        if (shim_tls.held)
                file_unref(f);
        shim_tls.held = false;
        usock_leave();
        return NULL;
}

void file_share(struct file *f)
{
        int r = 0;

        assert(usock_tls.inside && shim_locked());
        f->retry = false;
        if (f->mode < MODE_NEW || f->shared)
                return;
        if (f->mode == MODE_NEW)
                r = sock_engage(f);
        if (r < 0) {
                sock_decide(f, MODE_KERNEL, sock_refused(r));
                return;
        }
        f->shared = true;
        file_say(f);
}
