/* What a round trip from a program through the kernel to a FUSE file system and back takes, by the device /dev/fuse and by io_uring.
 *
 *     cc -O2 -pthread -o round-trips bench/round-trips.c
 *     round-trips DIR [--threads N] [--uring [--pin] [--defer]] [--awake]
 *
 * As root. Mounts the least of all file systems on DIR, a directory that can be looked at and has no attributes, asks it 20,000 times
 * for `security.selinux`, as `ls -l` does for each file, prints the microseconds of each such round trip, six times, and unmounts it.
 * No kernel keeps the answer, so each call is one request. With --uring requests are answered by io_uring, which Linux 6.14 and later
 * allow after `echo Y > /sys/module/fuse/parameters/enable_uring`: one queue and one thread for each processor, with --pin each on its
 * own; with --defer the kernel's part of the work is done when the thread asks for more. --awake holds /dev/cpu_dma_latency at 0. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20000, SERIES = 6, ENTRIES = 4, PAYLOAD = 256 << 10, REQUEST = 1 << 20 };
enum { GETATTR = 3, GETXATTR = 22, INIT = 26, FORGET = 2, INTERRUPT = 36, BATCH_FORGET = 42 };
enum { REGISTER = 1, COMMIT_AND_FETCH = 2 };
/* Of INIT: more flags follow, the longest request is told, and requests are to come by io_uring (of the flags that follow). */
enum { INIT_EXT = 1 << 30, MAX_PAGES = 1 << 22, BY_URING = 1 << 9 };
/* Of io_uring, newer than the headers of Debian 12. */
enum { COOP_TASKRUN = 1 << 8, SINGLE_ISSUER = 1 << 12, DEFER_TASKRUN = 1 << 13 };

/* As in the kernel's fuse.h. */
struct in_header { uint32_t length, opcode; uint64_t unique, node; uint32_t uid, gid, pid; uint16_t extension, padding; };
struct out_header { uint32_t length; int32_t error; uint64_t unique; };
struct init_in { uint32_t major, minor, max_readahead, flags, flags2, unused[11]; };
struct init_out {
    uint32_t major, minor, max_readahead, flags;
    uint16_t max_background, congestion;
    uint32_t max_write, time_granularity;
    uint16_t max_pages, map_alignment;
    uint32_t flags2, unused[7];
};
struct attributes_out {
    uint64_t valid;
    uint32_t valid_ns, dummy;
    uint64_t ino, size, blocks, atime, mtime, ctime;
    uint32_t atime_ns, mtime_ns, ctime_ns, mode, links, uid, gid, rdev, block_size, flags;
};
struct uring_header {
    char in_out[128], operation[128];
    struct { uint64_t flags, commit; uint32_t payload, padding; uint64_t reserved; } entry;
};
struct uring_command { uint64_t flags, commit; uint16_t queue; uint8_t padding[6]; };

static int device;
static int by_uring, is_pinned, is_deferred;
static atomic_int is_begun;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

/* The answer to a request, written to `out`: its length. */
static size_t answer(const struct in_header *in, void *out, int32_t *error)
{
    *error = in->opcode == GETATTR ? 0 : in->opcode == GETXATTR ? -ENODATA : -ENOSYS;
    if (in->opcode != GETATTR)
        return 0;
    struct attributes_out *found = memset(out, 0, sizeof *found);
    found->valid = 3600;
    found->ino = 1;
    found->mode = S_IFDIR | 0755;
    found->links = 2;
    found->block_size = 4096;
    return sizeof *found;
}

static size_t begin(const struct init_in *in, struct init_out *out)
{
    memset(out, 0, sizeof *out);
    out->major = 7;
    out->minor = in->minor < 42 ? in->minor : 42;
    out->max_readahead = in->max_readahead;
    out->flags = INIT_EXT | MAX_PAGES;
    out->max_background = 12;
    out->congestion = 9;
    out->max_write = 32 * 4096;
    out->max_pages = 32;
    out->time_granularity = 1;
    if (by_uring && !(in->flags2 & BY_URING)) {
        fprintf(stderr, "this kernel doesn't offer io_uring; see /sys/module/fuse/parameters/enable_uring\n");
        exit(1);
    }
    out->flags2 = by_uring ? BY_URING : 0;
    return sizeof *out;
}

static void *serve_by_device(void *unused)
{
    char *request = malloc(REQUEST);
    char reply[4096];
    struct in_header *in = (void *)request;
    struct out_header *out = (void *)reply;
    for (;;) {
        ssize_t length = read(device, request, REQUEST);
        if (length < 0 && errno == ENODEV)
            return unused;
        if (length < 0 || in->opcode == FORGET || in->opcode == BATCH_FORGET || in->opcode == INTERRUPT)
            continue;
        int is_first = in->opcode == INIT;
        out->error = 0;
        out->unique = in->unique;
        size_t bytes = is_first ? begin((void *)(in + 1), (void *)(out + 1)) : answer(in, out + 1, &out->error);
        out->length = sizeof *out + bytes;
        if (write(device, reply, out->length) < 0 && errno != ENOENT)
            fail("write to /dev/fuse");
        if (is_first)
            atomic_store(&is_begun, 1);
    }
}

/* The rings of io_uring, without a library. */
struct ring {
    int fd;
    unsigned *tail, *sq_mask, *array, *cq_head, *cq_tail, *cq_mask, waiting;
    char *entries;
    struct io_uring_cqe *done;
};

static struct ring ring_new(void)
{
    struct io_uring_params of = {.flags = IORING_SETUP_SQE128 | SINGLE_ISSUER | (is_deferred ? DEFER_TASKRUN : COOP_TASKRUN)};
    struct ring ring = {.fd = syscall(SYS_io_uring_setup, 2 * ENTRIES, &of)};
    if (ring.fd < 0)
        fail("io_uring_setup");
    int rights = PROT_READ | PROT_WRITE;
    size_t sq_bytes = of.sq_off.array + of.sq_entries * sizeof(unsigned);
    size_t cq_bytes = of.cq_off.cqes + of.cq_entries * sizeof(struct io_uring_cqe);
    char *sq = mmap(NULL, sq_bytes, rights, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, cq_bytes, rights, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
    ring.entries = mmap(NULL, of.sq_entries * 128, rights, MAP_SHARED, ring.fd, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || ring.entries == MAP_FAILED)
        fail("mmap");
    ring.tail = (void *)(sq + of.sq_off.tail);
    ring.sq_mask = (void *)(sq + of.sq_off.ring_mask);
    ring.array = (void *)(sq + of.sq_off.array);
    ring.cq_head = (void *)(cq + of.cq_off.head);
    ring.cq_tail = (void *)(cq + of.cq_off.tail);
    ring.cq_mask = (void *)(cq + of.cq_off.ring_mask);
    ring.done = (void *)(cq + of.cq_off.cqes);
    return ring;
}

static void ask(struct ring *ring, int operation, uint64_t which, const struct iovec *room, uint16_t queue, uint64_t commit)
{
    unsigned tail = *ring->tail, at = tail & *ring->sq_mask;
    struct io_uring_sqe *entry = (void *)(ring->entries + at * 128);
    memset(entry, 0, 128);
    entry->opcode = IORING_OP_URING_CMD;
    entry->fd = device;
    entry->off = (uint64_t)operation;
    entry->user_data = which;
    if (operation == REGISTER) {
        entry->addr = (uintptr_t)room;
        entry->len = 2;
    }
    *(struct uring_command *)((char *)entry + 48) = (struct uring_command){.commit = commit, .queue = queue};
    ring->array[at] = at;
    __atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
    ring->waiting++;
}

static void *serve_by_uring(void *number)
{
    uint16_t queue = (uint16_t)(uintptr_t)number;
    if (is_pinned)
        stay_on(queue);
    struct ring ring = ring_new();
    struct uring_header *headers = aligned_alloc(4096, ENTRIES * sizeof *headers);
    struct iovec rooms[ENTRIES][2];
    for (int which = 0; which < ENTRIES; which++) {
        rooms[which][0] = (struct iovec){&headers[which], sizeof headers[which]};
        rooms[which][1] = (struct iovec){aligned_alloc(4096, PAYLOAD), PAYLOAD};
        ask(&ring, REGISTER, which, rooms[which], queue, 0);
    }
    for (;;) {
        int taken = syscall(SYS_io_uring_enter, ring.fd, ring.waiting, 1, IORING_ENTER_GETEVENTS, NULL, 0);
        if (taken < 0 && errno != EINTR)
            fail("io_uring_enter");
        ring.waiting -= taken < 0 ? 0 : (unsigned)taken;
        unsigned head = *ring.cq_head;
        for (; head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE); head++) {
            struct io_uring_cqe *done = &ring.done[head & *ring.cq_mask];
            if (done->res == -ENOTCONN || done->res == -ECONNABORTED)
                return NULL;
            if (done->res < 0) {
                errno = -done->res;
                fail("a request by io_uring");
            }
            struct uring_header *header = &headers[done->user_data];
            struct in_header in;
            memcpy(&in, header->in_out, sizeof in);
            struct out_header out = {.unique = in.unique};
            header->entry.payload = answer(&in, rooms[done->user_data][1].iov_base, &out.error);
            out.length = sizeof out + header->entry.payload;
            memcpy(header->in_out, &out, sizeof out);
            ask(&ring, COMMIT_AND_FETCH, done->user_data, NULL, queue, header->entry.commit);
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    }
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    long threads = sysconf(_SC_NPROCESSORS_CONF), processors = threads;
    for (int at = 2; at < argc; at++) {
        if (strcmp(argv[at], "--threads") == 0 && at + 1 < argc)
            threads = atol(argv[++at]);
        else if (strcmp(argv[at], "--uring") == 0)
            by_uring = 1;
        else if (strcmp(argv[at], "--pin") == 0)
            is_pinned = 1;
        else if (strcmp(argv[at], "--defer") == 0)
            is_deferred = 1;
        else if (strcmp(argv[at], "--awake") == 0) {
            int32_t at_once = 0;
            int latency = open("/dev/cpu_dma_latency", O_WRONLY);
            if (latency < 0 || write(latency, &at_once, sizeof at_once) < 0)
                fail("/dev/cpu_dma_latency");
        } else
            argc = 0;
    }
    if (argc < 2) {
        fprintf(stderr, "round-trips DIR [--threads N] [--uring [--pin] [--defer]] [--awake]\n");
        return 2;
    }
    const char *dir = argv[1];
    char options[100];
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    if (device < 0 || mount("round-trips", dir, "fuse.round-trips", MS_NOSUID | MS_NODEV, options))
        fail(dir);
    pthread_t thread;
    for (long number = 0; number < threads; number++)
        pthread_create(&thread, NULL, serve_by_device, NULL);
    while (!atomic_load(&is_begun))
        usleep(1000);
    for (long number = 0; by_uring && number < processors; number++)
        pthread_create(&thread, NULL, serve_by_uring, (void *)number);
    /* Until all queues are there the kernel goes by the device. */
    usleep(200000);
    int code = 0;
    for (int series = 0; series < SERIES && code == 0; series++) {
        char value[16];
        double began = now_us();
        for (int call = 0; call < CALLS && code == 0; call++)
            code = getxattr(dir, "security.selinux", value, sizeof value) < 0 && errno == ENODATA ? 0 : 1;
        printf("%.2f ", (now_us() - began) / CALLS);
        fflush(stdout);
    }
    printf("us\n");
    umount2(dir, MNT_DETACH);
    /* The threads wait in the kernel. */
    _exit(code);
}
