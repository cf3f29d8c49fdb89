/* Changes the wall clock of the program that it is loaded into: gettimeofday, time and the real-time
 * clock of clock_gettime. The file that QUORLOCK_BENT_CLOCK names contains a sequence number of changes,
 * odd while a change is being written; the real time of the last change, in nanoseconds since 1970; the
 * time shown at that moment; and the rate.
 *
 * It calls the kernel directly: the functions of the C library are the ones replaced, and dlsym may
 * allocate memory, for which the allocator reads the time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct bend {
    volatile uint64_t changes;
    volatile int64_t since, bent;
    volatile double rate;
};

static struct bend *bend;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("QUORLOCK_BENT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *bend, PROT_READ, MAP_SHARED, file, 0);
    if (memory != MAP_FAILED) bend = memory;
    close(file);
}

static int64_t now(void) {
    struct timespec real;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &real);
    int64_t nanos = (int64_t)real.tv_sec * 1000000000 + real.tv_nsec;
    if (!bend) return nanos;
    for (;;) {
        uint64_t before = bend->changes;
        __sync_synchronize();
        int64_t shown = bend->bent + (int64_t)((double)(nanos - bend->since) * bend->rate);
        __sync_synchronize();
        if (before % 2 == 0 && bend->changes == before) return shown;
    }
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    int64_t nanos = now();
    at->tv_sec = nanos / 1000000000;
    at->tv_usec = nanos % 1000000000 / 1000;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) return (int)syscall(SYS_clock_gettime, clock, at);
    int64_t nanos = now();
    at->tv_sec = nanos / 1000000000;
    at->tv_nsec = nanos % 1000000000;
    return 0;
}

time_t time(time_t *at) {
    time_t seconds = now() / 1000000000;
    if (at) *at = seconds;
    return seconds;
}
