# Made by bench/vm_counted --plot. gnuplot docs/verbs-windows.gp: draws docs/verbs-windows.svg.
set terminal svg size 960,400 background "white"
set output "docs/verbs-windows.svg"
set multiplot layout 1,2
set logscale x 2
set xlabel "window, KB"
set ylabel "Gb/s, counted"
set grid
$data << END
2 0.104 0.110 0.051 0.064
4 0.182 0.244 0.072 0.133
8 0.248 0.497 0.134 0.137
16 0.285 0.617 0.136 0.138
32 0.313 0.795 0.136 0.138
64 0.357 1.070 0.136 0.138
END
set title "one processor is all there is"
set yrange [0:1.6]
set key left top
plot $data using 1:2 with linespoints lw 2 title "TCP over verbs", \
     $data using 1:3 with linespoints lw 2 title "kernel TCP, same veth", \
     0.461 with lines dashtype 2 title "raw endpoint, 4096 bytes", \
     0.394 with lines dashtype 3 title "TCP over verbs, its own window"
set title "a wire of 140 Mb/s between"
set yrange [0:0.16]
set key right bottom
plot $data using 1:4 with linespoints lw 2 title "TCP over verbs", \
     $data using 1:5 with linespoints lw 2 title "kernel TCP, same wire", \
     0.137 with lines dashtype 2 title "raw endpoint, 4096 bytes", \
     0.135 with lines dashtype 3 title "TCP over verbs, its own window"
