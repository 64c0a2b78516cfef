"""The rows of bench/programs: a file for each kind of server, a class for each server, a Load for each row."""

from . import mariadb, memcached, postgresql, redis, streams, web

ALL = (postgresql.Postgres, mariadb.Mariadb, memcached.Memcached, redis.Redis, web.Nginx, web.Haproxy, web.Gunicorn,
       web.GunicornThreads, streams.Exchange, streams.Nuttcp, streams.Iperf, streams.Sockperf)
