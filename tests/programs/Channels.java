import java.io.DataInputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;

/** `serve PORT`: one selector, which sends back what comes. `ask PORT`: blocking threads; prints "right". */
public class Channels {
    private static final int THREADS = 20;

    public static void main(String[] args) throws Exception {
        InetSocketAddress at = new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1]));

        if (args[0].equals("serve"))
            serve(at);
        else
            ask(at);
    }

    private static void serve(InetSocketAddress at) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();

        listener.bind(at);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        for (;;) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel c = listener.accept();

                    if (c != null) {
                        c.configureBlocking(false);
                        c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(30000));
                    }
                } else {
                    pass(key);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    /** Reads when nothing is left to write, and writes as much as there is room for. */
    private static void pass(SelectionKey key) throws Exception {
        SocketChannel c = (SocketChannel) key.channel();
        ByteBuffer b = (ByteBuffer) key.attachment();

        if (key.isReadable()) {
            b.clear();
            if (c.read(b) < 0) {
                c.close();
                return;
            }
            b.flip();
        }
        c.write(b);
        key.interestOps(b.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
    }

    private static void ask(InetSocketAddress at) throws Exception {
        Thread[] threads = new Thread[THREADS];
        boolean[] right = new boolean[THREADS];

        for (int i = 0; i < THREADS; i++) {
            int n = i;

            threads[i] = new Thread(() -> right[n] = transfer(at, n));
            threads[i].start();
        }
        for (Thread t : threads)
            t.join();
        for (boolean r : right)
            if (!r)
                System.exit(1);
        System.out.println("right");
        System.exit(0);
    }

    private static boolean transfer(InetSocketAddress at, int n) {
        byte[] sent = new byte[n % 2 == 0 ? 1000 : 1000000], came = new byte[sent.length];

        new Random(n).nextBytes(sent);
        try (Socket s = new Socket(at.getAddress(), at.getPort())) {
            Thread sends = new Thread(() -> {
                try {
                    s.getOutputStream().write(sent);
                    s.shutdownOutput();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            });

            sends.start();
            new DataInputStream(s.getInputStream()).readFully(came);
            sends.join();
            return s.getInputStream().read() < 0 && Arrays.equals(sent, came);
        } catch (Exception e) {
            e.printStackTrace();
            return false;
        }
    }
}
