/*
 * conn_rate by the native API: connect, one byte each way, close; in sequence.
 *
 *      conn_native server PORT             serves until a client sends 'q'
 *      conn_native client PORT SECONDS     prints one line of JSON, then stops the server
 */
#include "bench/native.h"

static void serve(int port)
{
        int listener = native_listen(port);
        char byte = 0, end;

        while (byte != 'q') {
                int s = native_accept(listener);

                if (unet_recv(s, &byte, 1, 0) != 1 || unet_send(s, &byte, 1, 0) != 1)
                        die("serve");
                if (unet_recv(s, &end, 1, 0) != 0) /* the client closes first */
                        die("end of stream");
                unet_close(s);
        }
        unet_close(listener);
}

static void one_connection(int port, char byte)
{
        int s = native_connect(port);
        char back;

        if (unet_send(s, &byte, 1, 0) != 1 || unet_recv(s, &back, 1, 0) != 1 || back != byte)
                die("exchange");
        unet_close(s);
}

static void drive(int port, double seconds)
{
        double start, took;
        unsigned long n = 0;

        for (int i = 0; i < 100; i++)
                one_connection(port, 'w');
        start = now_s();
        do {
                one_connection(port, 'x');
                n++;
                took = now_s() - start;
        } while (took < seconds);
        one_connection(port, 'q');
        printf("{\"connections\": %lu, \"seconds\": %.6f, \"rate\": %.1f}\n", n, took,
               (double)n / took);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "server") == 0) {
                serve((int)number_arg(argv[2], 1, 65535));
        } else if (argc == 4 && strcmp(argv[1], "client") == 0) {
                drive((int)number_arg(argv[2], 1, 65535), (double)number_arg(argv[3], 1, 3600));
        } else {
                fprintf(stderr, "usage: conn_native server PORT | client PORT SECONDS\n");
                return 2;
        }
        return 0;
}
