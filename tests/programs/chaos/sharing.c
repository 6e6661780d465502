/* Memory shared with the other processes: descriptors go out at quiet points, and are imported after them. */
#include "chaos.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { OFFERS_MAX = 2, RECEIVED_MAX = 16 };
struct offer { int sender, number; size_t bytes; };
static struct { struct offer offer; int file, peer; } offers[OFFERS_MAX];
static int offer_count, offers_made, peers_socket = -1;

static struct sockaddr_un address_of(int process) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s/chaos-%d", options.folder, process);
    return address;
}

void meet_peers(void) {
    if (!options.folder) return;
    struct sockaddr_un address = address_of(options.process);
    peers_socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(peers_socket, (struct sockaddr *)&address, sizeof address)) {
        perror("chaos: the peers' folder");
        exit(70);
    }
}

/* Exports memory for one of the others, who gets it at the next quiet point. One thread of a process does so. */
void offer(struct actor *a) {
    struct thing *thing = some(a, PHYSICAL);
    int file = -1, peer = below(a, options.processes);
    if (!thing || a->number || offer_count == OFFERS_MAX || peers_socket < 0 || peer == options.process) return;
    if (CALL(a, cuMemExportToShareableHandle, &file, thing->handle, 1, 0)) return;
    offers[offer_count].offer = (struct offer){options.process, offers_made++, thing->size};
    offers[offer_count].file = file;
    offers[offer_count++].peer = peer;
}

void send_offers(void) {
    for (int at = 0; at < offer_count; at++) {
        char room[CMSG_SPACE(sizeof(int))] = {0};
        struct sockaddr_un address = address_of(offers[at].peer);
        struct iovec vector = {&offers[at].offer, sizeof offers[at].offer};
        struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &vector, .msg_iovlen = 1,
                                 .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &offers[at].file, sizeof(int));
        /* Whose queue is full goes without. */
        sendmsg(peers_socket, &message, MSG_DONTWAIT);
        close(offers[at].file);
    }
    offer_count = 0;
}

static int receive(struct offer *offer, int *file) {
    char room[CMSG_SPACE(sizeof(int))];
    struct iovec vector = {offer, sizeof *offer};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (recvmsg(peers_socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *offer) return 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header) return 0;
    memcpy(file, CMSG_DATA(header), sizeof *file);
    return 1;
}

/* In the order of their senders, not of their arrival. */
void receive_offers(struct actor *a) {
    struct { struct offer offer; int file; } got[RECEIVED_MAX];
    int count = 0;
    while (peers_socket >= 0 && count < RECEIVED_MAX && receive(&got[count].offer, &got[count].file)) {
        for (int at = count++; at > 0; at--) {
            long before = got[at - 1].offer.sender * 1000000l + got[at - 1].offer.number;
            if (before <= got[at].offer.sender * 1000000l + got[at].offer.number) break;
            typeof(got[0]) later = got[at - 1];
            got[at - 1] = got[at], got[at] = later;
        }
    }
    for (int at = 0; at < count; at++) {
        CUmemGenericAllocationHandle handle = UNTOUCHED;
        if (!is_full(a, PHYSICAL) && !CALL(a, cuMemImportFromShareableHandle, &handle, (void *)(uintptr_t)got[at].file, 1)) {
            put_known(a, handle);
            keep(a, PHYSICAL, handle, got[at].offer.bytes)->parts = 1;
        }
        close(got[at].file);
    }
}
