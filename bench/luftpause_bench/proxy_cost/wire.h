/* What the engine and the load generator of proxy_cost agree on.
 *
 * A chunk's event carries "@<time sent, 16 digits of nanoseconds>.<number, 5 digits>@". The reader learns transit times from the first part and
 * lost or reordered chunks from the second; every other byte of an answer enters a sum that must be the same as without a proxy.
 */
#ifndef PROXY_COST_WIRE_H
#define PROXY_COST_WIRE_H

#include <stdint.h>
#include <time.h>

#define STAMP_FORMAT "@%016lld.%05d@"
#define STAMP_DIGITS 16
#define NUMBER_DIGITS 5

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#endif
