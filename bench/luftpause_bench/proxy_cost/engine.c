/* An engine that costs next to nothing: one thread, answers written in advance, streams paced by a heap of due times.
 *
 *   engine PORT        PORT 0 takes a free one; the port is printed on the first line.
 *   GET /control?chunks=N&delay_us=D      chunks per stream; pause between two of them (0: as fast as the reader takes them)
 *   POST with "stream":true               a stream of N chunks; any other POST: one JSON answer
 *   any other GET                         what routers ask of a worker
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
#include <sys/timerfd.h>
#include <unistd.h>

#include "wire.h"

#define EVENTS_MAX 512
#define UNSENT_MAX 65536 /* an unpaced stream waits for its reader beyond this */

typedef struct Connection {
    int fd, closed, writing;         /* writing: epoll reports when there is room again */
    char *in, *out;
    size_t in_size, in_room, out_at, out_size, out_room;
    int streaming, number, chunks;   /* of the stream under way */
    int64_t due;
    int place;                       /* in the heap; -1: not there */
    struct Connection *next;         /* among unpaced streams */
} Connection;

static int epoll, chunks_per_stream = 64;
static int64_t delay_ns = 0;
static Connection *unpaced = NULL;

/* ---- due times: a binary heap ---- */

static Connection **heap = NULL;
static int heap_size = 0, heap_room = 0;

static void put(int at, Connection *c) { heap[at] = c; c->place = at; }

static void sift(int at) {
    Connection *c = heap[at];
    while (at > 0 && heap[(at - 1) / 2]->due > c->due) { put(at, heap[(at - 1) / 2]); at = (at - 1) / 2; }
    for (;;) {
        int kid = 2 * at + 1;
        if (kid >= heap_size) break;
        if (kid + 1 < heap_size && heap[kid + 1]->due < heap[kid]->due) kid++;
        if (heap[kid]->due >= c->due) break;
        put(at, heap[kid]);
        at = kid;
    }
    put(at, c);
}

static void schedule(Connection *c) {
    if (heap_size == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 1024;
        heap = realloc(heap, sizeof *heap * heap_room);
    }
    put(heap_size++, c);
    sift(c->place);
}

static void unschedule(Connection *c) {
    if (c->place < 0) return;
    int at = c->place;
    c->place = -1;
    Connection *last = heap[--heap_size];
    if (last == c) return;
    put(at, last);
    sift(at);
}

/* ---- writing ---- */

static void watch(Connection *c, int writing) {
    if (c->writing == writing) return;
    c->writing = writing;
    struct epoll_event e = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static void hang_up(Connection *c) {
    if (c->closed) return;
    c->closed = 1;
    unschedule(c);
    close(c->fd);
}

static void flush_out(Connection *c) {
    while (!c->closed && c->out_at < c->out_size) {
        ssize_t sent = send(c->fd, c->out + c->out_at, c->out_size - c->out_at, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN) { watch(c, 1); return; }
            hang_up(c);
            return;
        }
        c->out_at += sent;
    }
    c->out_at = c->out_size = 0;
    if (!c->closed) watch(c, 0);
}

static void write_out(Connection *c, const char *data, size_t size) {
    if (c->closed) return;
    if (c->out_size + size > c->out_room) {
        c->out_room = (c->out_size + size) * 2;
        c->out = realloc(c->out, c->out_room);
    }
    memcpy(c->out + c->out_size, data, size);
    c->out_size += size;
    if (!c->writing) flush_out(c);
}

/* ---- answers ---- */

#define FRAME "{\"id\":\"chatcmpl-9f2c1a7be4d84c0d8f7c6b5a49382716\",\"object\":\"chat.completion%s\",\"created\":1796000000,\"model\":\"fake\","
static const char *STREAM_HEAD =
    "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    "transfer-encoding: chunked\r\n\r\n";

static int as_chunk(char *into, const char *event, int size) {
    int head = sprintf(into, "%x\r\n", size);
    memcpy(into + head, event, size);
    memcpy(into + head + size, "\r\n", 2);
    return head + size + 2;
}

static void next_chunk(Connection *c) {
    char event[1024], out[4096];
    int size = snprintf(event, sizeof event,
        "data: " FRAME "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"" STAMP_FORMAT "\"},\"logprobs\":null,"
        "\"finish_reason\":null}],\"usage\":null}\n\n", ".chunk", (long long)now_ns(), c->number);
    int filled = as_chunk(out, event, size);
    if (++c->number == c->chunks) { /* the last token and what closes the stream leave together, as engines nearly do */
        size = snprintf(event, sizeof event,
            "data: " FRAME "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\n", ".chunk");
        filled += as_chunk(out + filled, event, size);
        size = snprintf(event, sizeof event,
            "data: " FRAME "\"choices\":[],\"usage\":{\"prompt_tokens\":512,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\n",
            ".chunk", c->chunks, c->chunks + 512);
        filled += as_chunk(out + filled, event, size);
        filled += as_chunk(out + filled, "data: [DONE]\n\n", 14);
        memcpy(out + filled, "0\r\n\r\n", 5);
        filled += 5;
        c->streaming = 0;
    }
    write_out(c, out, filled);
}

static void begin_stream(Connection *c) {
    c->streaming = 1;
    c->number = 0;
    c->chunks = chunks_per_stream;
    write_out(c, STREAM_HEAD, strlen(STREAM_HEAD));
    if (delay_ns == 0) { c->next = unpaced; unpaced = c; return; }
    next_chunk(c);
    if (c->streaming && !c->closed) { c->due = now_ns() + delay_ns; schedule(c); }
}

static void answer_json(Connection *c, const char *body, int size) {
    char head[256];
    int filled = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: application/json\r\n\r\n", size);
    char out[4096];
    memcpy(out, head, filled);
    memcpy(out + filled, body, size);
    write_out(c, out, filled + size);
}

static void answer_whole(Connection *c) {
    char body[2048];
    int size = snprintf(body, sizeof body,
        FRAME "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"" STAMP_FORMAT " A short answer, about as long as a "
        "tool call with two arguments or a sentence that says that there is nothing further to do.\",\"reasoning_content\":null,"
        "\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":\"stop\",\"matched_stop\":128009}],\"usage\":{\"prompt_tokens\":512,"
        "\"total_tokens\":544,\"completion_tokens\":32,\"prompt_tokens_details\":null}}", "", (long long)now_ns(), 0);
    answer_json(c, body, size);
}

static void answer_get(Connection *c, const char *head) {
    const char *found;
    if (strncmp(head, "GET /control", 12) == 0) {
        if ((found = strstr(head, "chunks="))) chunks_per_stream = atoi(found + 7);
        if ((found = strstr(head, "delay_us="))) delay_ns = atoll(found + 9) * 1000;
    }
    static const char worker[] =
        "{\"object\":\"list\",\"data\":[{\"id\":\"fake\",\"object\":\"model\",\"created\":1796000000,\"owned_by\":\"bench\"}],"
        "\"model_path\":\"fake\",\"served_model_name\":\"fake\",\"model_id\":\"fake\",\"status\":\"ready\",\"is_generation\":true,"
        "\"tokenizer_path\":\"fake\",\"tp_size\":1,\"dp_size\":1,\"version\":\"0.5.6\"}";
    answer_json(c, worker, sizeof worker - 1);
}

/* ---- requests ---- */

static long content_length(char *head, char *end) {
    char kept = *end;
    *end = 0;
    char *found = strcasestr(head, "\ncontent-length:");
    long size = found ? atol(found + 16) : 0;
    *end = kept;
    return size;
}

/* Request bodies of these proxies have a length, or are chunked; the end of a chunked one is its last chunk. */
static long body_size(Connection *c, char *body) {
    char kept = *body;
    *body = 0;
    int chunked = strcasestr(c->in, "\ntransfer-encoding: chunked") != NULL;
    *body = kept;
    if (!chunked) return content_length(c->in, body);
    char *end = memmem(body, c->in + c->in_size - body, "\r\n0\r\n\r\n", 7);
    return end ? end + 7 - body : -1;
}

static void serve(Connection *c) {
    while (!c->streaming && !c->closed) {
        c->in[c->in_size] = 0;
        char *end = memmem(c->in, c->in_size, "\r\n\r\n", 4);
        if (!end) return;
        char *body = end + 4;
        long size = body_size(c, body);
        if (size < 0 || c->in + c->in_size < body + size) return;
        int post = strncmp(c->in, "POST", 4) == 0;
        int stream = post && (memmem(body, size, "\"stream\":true", 13) || memmem(body, size, "\"stream\": true", 14));
        if (stream) begin_stream(c);
        else if (post) answer_whole(c);
        else answer_get(c, c->in);
        size_t used = body + size - c->in;
        memmove(c->in, c->in + used, c->in_size - used);
        c->in_size -= used;
    }
}

static void take_in(Connection *c) {
    for (;;) {
        if (c->in_room - c->in_size < 4096) {
            c->in_room *= 2;
            c->in = realloc(c->in, c->in_room + 1);
        }
        ssize_t size = recv(c->fd, c->in + c->in_size, c->in_room - c->in_size, 0);
        if (size == 0 || (size < 0 && errno != EAGAIN)) { hang_up(c); return; }
        if (size < 0) break;
        c->in_size += size;
    }
    serve(c);
}

static void accept_all(int listening) {
    int fd, on = 1;
    while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        Connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->place = -1;
        c->in_room = 8192;
        c->in = malloc(c->in_room + 1);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
    }
}

/* ---- the loop ---- */

static void send_due(void) {
    int64_t now = now_ns();
    while (heap_size && heap[0]->due <= now) {
        Connection *c = heap[0];
        unschedule(c);
        next_chunk(c);
        if (c->closed) continue;
        if (c->streaming) { c->due += delay_ns; schedule(c); }
        else serve(c);
    }
}

static void send_unpaced(void) {
    Connection *c = unpaced, *next;
    unpaced = NULL;
    for (; c; c = next) {
        next = c->next;
        if (c->closed) continue;
        if (c->out_size - c->out_at < UNSENT_MAX) next_chunk(c);
        if (c->closed) continue;
        if (c->streaming) { c->next = unpaced; unpaced = c; }
        else serve(c);
    }
}

/* Wakes epoll when the next chunk is due: its own timeout knows milliseconds only. */
static void set_alarm(int timer) {
    struct itimerspec at = {0};
    if (heap_size) { at.it_value.tv_sec = heap[0]->due / 1000000000; at.it_value.tv_nsec = heap[0]->due % 1000000000; }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void clear_alarm(int timer) {
    uint64_t rung;
    if (read(timer, &rung, sizeof rung) < 0) return;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(words[1]) : 0), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_size = sizeof at;
    if (bind(listening, (void *)&at, sizeof at) || listen(listening, 4096)) { perror("engine"); return 1; }
    getsockname(listening, (void *)&at, &at_size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    epoll = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS_MAX];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &e);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    e.data.ptr = &timer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &e);
    for (;;) {
        set_alarm(timer);
        int ready = epoll_wait(epoll, events, EVENTS_MAX, unpaced ? 0 : -1);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) { accept_all(listening); continue; }
            if ((void *)c == &timer) { clear_alarm(timer); continue; }
            if (c->closed) continue;
            if (events[i].events & EPOLLOUT) flush_out(c);
            if (!c->closed && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take_in(c);
        }
        send_due();
        send_unpaced();
    }
}
