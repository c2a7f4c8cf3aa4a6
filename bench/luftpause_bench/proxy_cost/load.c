/* A closed loop of requests on keep-alive connections; one thread, and it looks at every byte that comes back.
 *
 *   load PORT PATH BODY_FILE CONNECTIONS SECONDS CHUNKS SPREAD_MS [HEADER ...]
 *
 * Each connection sends the same request again as soon as its answer is complete. CHUNKS is how many stamped chunks an answer must have.
 * The first SPREAD_MS are for starting the connections one after the other; figures begin after that and a short warm-up.
 * Prints one JSON object: counts, and times in microseconds. `sums` counts how many different sums the answers had (wire.h): with an
 * untouched stream that is 1, and `sum` is the one of a direct connection.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

#define EVENTS_MAX 512
#define HEAD_MAX 16384
#define SUMS_MAX 64

typedef enum { HEAD, LENGTH, CHUNKED, UNTIL_CLOSE } Framing;
typedef enum { SIZE, EXTENSION, DATA, DATA_CR, DATA_LF, TRAILER } ChunkState;

typedef struct Connection {
    int fd, started, close_after;
    Framing framing;
    ChunkState chunk;
    int trailer_bytes; /* of the current trailer line */
    char head[HEAD_MAX];
    int head_size;
    long left;
    int64_t asked, starts;
    /* the answer so far */
    int stamps, wrong_order, in_stamp, digits;
    int64_t value, sent;
    uint64_t sum;
} Connection;

typedef struct { float *values; int size, room; } Figures;

static Figures first_tokens, transits, totals;
static long answers, errors, incomplete, disordered, refused, chunks, reads;
static uint64_t sums[SUMS_MAX];
static int sums_seen = 0, expected, epoll;
static int64_t measures_from, ends;
static char *request;
static int request_size;
static struct sockaddr_in target;

static void note(Figures *f, double value) {
    if (f->size == f->room) {
        f->room = f->room ? f->room * 2 : 4096;
        f->values = realloc(f->values, sizeof(float) * f->room);
    }
    f->values[f->size++] = value;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double quantile(Figures *f, double q) { return f->size ? f->values[(int)(q * (f->size - 1) + 0.5)] : 0; }

static void note_sum(uint64_t sum) {
    for (int i = 0; i < sums_seen; i++) if (sums[i] == sum) return;
    if (sums_seen < SUMS_MAX) sums[sums_seen++] = sum;
}

/* ---- sending ---- */

static int open_connection(Connection *c) {
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (void *)&target, sizeof target)) {
        errors++;
        close(c->fd);
        c->fd = -1;
        return 0;
    }
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
    return 1;
}

static void drop(Connection *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static void ask(Connection *c) {
    c->started = 1;
    c->framing = HEAD;
    c->head_size = c->stamps = c->wrong_order = c->in_stamp = c->close_after = 0;
    c->sum = 1469598103934665603ULL;
    if (c->fd < 0 && !open_connection(c)) return;
    c->asked = now_ns();
    for (int sent = 0; sent < request_size;) {
        ssize_t size = send(c->fd, request + sent, request_size - sent, MSG_NOSIGNAL);
        if (size <= 0) { errors++; drop(c); return; }
        sent += size;
    }
}

/* ---- what comes back ---- */

static int measuring(int64_t now) { return now >= measures_from && now < ends; }

static void stamped(Connection *c, int64_t now) {
    if (c->value != c->stamps) c->wrong_order = 1;
    if (c->stamps++ == 0 && now >= measures_from) note(&first_tokens, (now - c->asked) / 1e3);
    if (measuring(now)) { chunks++; note(&transits, (now - c->sent) / 1e3); }
}

/* Stamps are read and left out of the sum; all other bytes enter it. */
static void read_body(Connection *c, const char *data, int size, int64_t now) {
    for (const char *end = data + size; data < end; data++) {
        char byte = *data;
        if (c->in_stamp && byte >= '0' && byte <= '9') {
            c->value = c->value * 10 + (byte - '0');
            c->digits++;
            continue;
        }
        if (c->in_stamp == 1 && byte == '.' && c->digits == STAMP_DIGITS) {
            c->in_stamp = 2;
            c->sent = c->value;
            c->value = c->digits = 0;
            continue;
        }
        if (c->in_stamp == 2 && byte == '@' && c->digits == NUMBER_DIGITS) {
            c->in_stamp = 0;
            stamped(c, now);
            continue;
        }
        c->in_stamp = byte == '@';
        c->value = c->digits = 0;
        c->sum = (c->sum ^ (unsigned char)byte) * 1099511628211ULL;
    }
}

static void complete(Connection *c, int64_t now) {
    if (measuring(now)) {
        answers++;
        note(&totals, (now - c->asked) / 1e3);
        if (c->stamps != expected) incomplete++;
        if (c->wrong_order) disordered++;
        note_sum(c->sum);
    }
    if (c->close_after) drop(c);
    if (now < ends) ask(c);
}

/* Returns how much of the data belonged to the head. */
static int read_head(Connection *c, const char *data, int size, int64_t now) {
    int room = HEAD_MAX - 1 - c->head_size, taken = size < room ? size : room, before = c->head_size;
    memcpy(c->head + before, data, taken);
    c->head_size += taken;
    c->head[c->head_size] = 0;
    char *end = memmem(c->head, c->head_size, "\r\n\r\n", 4);
    if (!end) return size;
    taken = end + 4 - c->head - before;
    end[2] = 0;
    if (strncmp(c->head + 9, "200", 3) && !refused++) fprintf(stderr, "not 200: %.600s\n%.*s\n", c->head, size - taken < 300 ? size - taken : 300, data + taken);
    c->close_after = strcasestr(c->head, "\nconnection: close") != NULL;
    char *length = strcasestr(c->head, "\ncontent-length:");
    c->left = length ? atol(length + 16) : 0;
    c->chunk = SIZE;
    c->framing = length ? LENGTH : strcasestr(c->head, "\ntransfer-encoding: chunked") ? CHUNKED : UNTIL_CLOSE;
    if (c->framing == LENGTH && c->left == 0) complete(c, now);
    return taken;
}

static int hex(char byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 32;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* One step of the chunked framing; returns how much data it took. */
static int read_chunk(Connection *c, const char *data, int size, int64_t now) {
    switch (c->chunk) {
    case SIZE:
    case EXTENSION:
        if (*data == '\n') { c->trailer_bytes = 0; c->chunk = c->left ? DATA : TRAILER; }
        else if (c->chunk == SIZE && hex(*data) >= 0) c->left = c->left * 16 + hex(*data);
        else if (*data != '\r') c->chunk = EXTENSION;
        return 1;
    case DATA: {
        int taken = size < c->left ? size : (int)c->left;
        read_body(c, data, taken, now);
        c->left -= taken;
        if (!c->left) c->chunk = DATA_CR;
        return taken;
    }
    case DATA_CR: c->chunk = DATA_LF; return 1;
    case DATA_LF: c->chunk = SIZE; return 1;
    case TRAILER:
        if (*data == '\n') { if (!c->trailer_bytes) complete(c, now); c->trailer_bytes = 0; }
        else if (*data != '\r') c->trailer_bytes++;
        return 1;
    }
    return size;
}

static void feed(Connection *c, const char *data, int size, int64_t now) {
    while (size > 0 && c->fd >= 0) {
        int taken = size;
        if (c->framing == HEAD) taken = read_head(c, data, size, now);
        else if (c->framing == CHUNKED) taken = read_chunk(c, data, size, now);
        else {
            if (c->framing == LENGTH && c->left < size) taken = c->left;
            read_body(c, data, taken, now);
            if (c->framing == LENGTH && !(c->left -= taken)) complete(c, now);
        }
        data += taken;
        size -= taken;
    }
}

static void hear(Connection *c) {
    static char data[1 << 18];
    ssize_t size = recv(c->fd, data, sizeof data, MSG_DONTWAIT);
    int64_t now = now_ns();
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
        Framing was = c->framing;
        drop(c);
        if (was == UNTIL_CLOSE) complete(c, now);
        else { errors++; if (now < ends) ask(c); }
        return;
    }
    reads++;
    feed(c, data, size, now);
}

/* ---- the whole ---- */

static void prepare(int count, char **words) {
    FILE *file = fopen(words[3], "rb");
    if (!file) { perror(words[3]); exit(2); }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    request = malloc(size + 8192);
    request_size = sprintf(request, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nUser-Agent: luftpause-bench\r\nAccept: */*\r\n"
        "Content-Type: application/json\r\nContent-Length: %ld\r\n", words[2], words[1], size);
    for (int i = 8; i < count; i++) request_size += sprintf(request + request_size, "%.1000s\r\n", words[i]);
    request_size += sprintf(request + request_size, "\r\n");
    if (fread(request + request_size, 1, size, file) != (size_t)size) { perror(words[3]); exit(2); }
    request_size += size;
    fclose(file);
}

int main(int count, char **words) {
    if (count < 8) { fprintf(stderr, "usage: load PORT PATH BODY_FILE CONNECTIONS SECONDS CHUNKS SPREAD_MS [HEADER ...]\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    prepare(count, words);
    int connections = atoi(words[4]), begun = 0;
    double seconds = atof(words[5]), spread = atof(words[7]);
    expected = atoi(words[6]);
    target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    epoll = epoll_create1(0);
    Connection *all = calloc(connections, sizeof *all);
    int64_t start = now_ns();
    measures_from = start + (int64_t)(spread * 1e6 + 0.3e9);
    ends = measures_from + (int64_t)(seconds * 1e9);
    for (int i = 0; i < connections; i++) { all[i].fd = -1; all[i].starts = start + (int64_t)(spread * 1e6 * i / connections); }
    struct epoll_event events[EVENTS_MAX];
    for (int64_t now = start; now < ends; now = now_ns()) {
        while (begun < connections && all[begun].starts <= now) ask(&all[begun++]);
        int ready = epoll_wait(epoll, events, EVENTS_MAX, begun < connections ? 1 : 50);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (c->fd >= 0) hear(c);
        }
    }
    Figures *every[] = {&first_tokens, &transits, &totals};
    for (int i = 0; i < 3; i++) qsort(every[i]->values, every[i]->size, sizeof(float), ascending);
    printf("{\"seconds\":%.3f,\"answers\":%ld,\"chunks\":%ld,\"errors\":%ld,\"incomplete\":%ld,\"disordered\":%ld,\"refused\":%ld,\"reads\":%ld,"
        "\"sums\":%d,\"sum\":\"%016llx\",\"first_token_p50\":%.1f,\"first_token_p99\":%.1f,\"transit_p50\":%.1f,\"transit_p99\":%.1f,"
        "\"total_p50\":%.1f,\"total_p99\":%.1f}\n",
        seconds, answers, chunks, errors, incomplete, disordered, refused, reads, sums_seen, (unsigned long long)(sums_seen ? sums[0] : 0),
        quantile(&first_tokens, 0.5), quantile(&first_tokens, 0.99), quantile(&transits, 0.5), quantile(&transits, 0.99),
        quantile(&totals, 0.5), quantile(&totals, 0.99));
    return 0;
}
