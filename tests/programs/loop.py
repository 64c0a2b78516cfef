#!/usr/bin/env python3
"""Servers that give back what comes, and who asks them.

    loop.py loop PORT           asyncio, all in one process
    loop.py children PORT       asyncio, by a child for each connection, through its pipes
    loop.py subprocess PORT     a child for each connection that has it as standard input and output
    loop.py ask PORT            asyncio: many connections at once; prints "right" """

import asyncio
import random
import socket
import subprocess
import sys
import threading

MANY = 30


async def back(reader, writer):
    while piece := await reader.read(20000):
        writer.write(piece)
        await writer.drain()
    writer.close()


async def by_child(reader, writer):
    child = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    await asyncio.gather(back(reader, child.stdin), back(child.stdout, writer))
    await child.wait()


async def serve(port, what):
    server = await asyncio.start_server(what, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def serve_by_children(port):
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            conn, _ = listener.accept()
            child = subprocess.Popen(["cat"], stdin=conn, stdout=conn, close_fds=True)
            conn.close()
            threading.Thread(target=child.wait, daemon=True).start()


async def one(port, n):
    sent = random.Random(n).randbytes((100, 20000, 700000)[n % 3])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send():
        for at in range(0, len(sent), 70000):
            writer.write(sent[at:at + 70000])
            await writer.drain()
        writer.write_eof()

    _, came = await asyncio.gather(send(), reader.read())
    writer.close()
    await writer.wait_closed()
    return came == sent


async def ask(port):
    assert all(await asyncio.gather(*(one(port, n) for n in range(MANY))))
    print("right")


def main():
    what, port = sys.argv[1], int(sys.argv[2])
    if what == "subprocess":
        serve_by_children(port)
    else:
        asyncio.run({"loop": lambda: serve(port, back), "children": lambda: serve(port, by_child), "ask": lambda: ask(port)}[what]())


if __name__ == "__main__":
    main()
