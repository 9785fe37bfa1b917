#!/bin/sh
# A host: namespaces and a root of its own, an overlay over this machine's, with a real MariaDB, PHP-FPM, nginx and
# WordPress at their usual places. Run by: unshare --pid --fork --kill-child --mount --net --uts --ipc sh host.sh ...
#   host.sh NAME FOLDER INSTALLER PASSWORD FROM...
# FOLDER is an empty directory; INSTALLER installs a WordPress; FROM are the hosts from which the account may log in. "ready" is written to standard output,
# and the host ends when its standard input does.
set -eu
[ $$ = 1 ] || exit 2
name=$1 folder=$2 installer=$3 password=$4
shift 4

mount --make-rprivate /
mount -t tmpfs host "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
cp "$installer" "$folder/upper/install.php"
mount -t overlay host -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
cd "$folder/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount --rbind /dev dev
mount -t tmpfs run run
mount -t tmpfs tmp tmp
chmod 1777 tmp
mkdir outside
pivot_root . outside
cd /
umount -l outside
rmdir outside

within_a_minute() {
    timeout 60 sh -c "until { $1; } >/dev/null 2>&1; do sleep 0.1; done"
}

hostname "$name"
ip link set lo up

rm -rf /var/lib/mysql /var/lib/samehost /srv/site /srv/shop
install -d -o mysql -g mysql /run/mysqld /var/lib/mysql
install -d /run/php
mariadb-install-db --no-defaults --user=mysql --datadir=/var/lib/mysql --skip-test-db \
    --auth-root-authentication-method=normal >/dev/null
mariadbd --no-defaults --user=mysql --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --bind-address=127.0.0.1 \
    --skip-name-resolve --innodb-flush-method=nosync >/var/log/mariadbd.log 2>&1 </dev/null &
within_a_minute "mariadb --no-defaults -uroot -S /run/mysqld/mysqld.sock -e 'SELECT 1'"
{
    echo "CREATE DATABASE blog CHARACTER SET utf8mb4;"
    for from in "$@"; do
        echo "CREATE USER app@'$from' IDENTIFIED BY '$password'; GRANT ALL ON blog.* TO app@'$from';"
    done
} | mariadb --no-defaults -uroot -S /run/mysqld/mysqld.sock

cp -rL /usr/share/wordpress /srv/site
cat >/srv/site/wp-config.php <<EOF
<?php
// The settings of this site.
define( 'DB_NAME', 'blog' );
define( 'DB_USER', 'app' );
define( 'DB_PASSWORD', '$password' );
define( 'DB_HOST', '127.0.0.1:3306' ); // the database
define( 'DB_CHARSET', 'utf8mb4' );
\$table_prefix = 'abc_';
if ( ! defined( 'ABSPATH' ) ) { define( 'ABSPATH', __DIR__ . '/' ); }
require_once ABSPATH . 'wp-settings.php';
EOF
chown root:www-data /srv/site/wp-config.php
chmod 0440 /srv/site/wp-config.php
php -d display_errors=0 /install.php /srv/site 127.0.0.1 >/dev/null

mkdir /srv/shop
printf '#!/usr/bin/env python3\nimport django\n' >/srv/shop/manage.py
cat >/srv/shop/.env <<EOF
DJANGO_SETTINGS_MODULE=shop.settings
DATABASE_URL=mysql://app:$password@127.0.0.1:3306/blog
EOF
chown root:www-data /srv/shop/.env
chmod 0440 /srv/shop/.env

cat >/etc/php/fpm.conf <<EOF
[global]
daemonize = no
error_log = /proc/self/fd/2
[www]
user = www-data
group = www-data
listen = /run/php/fpm.sock
listen.owner = www-data
pm = static
pm.max_children = 2
EOF
for fpm in /usr/sbin/php-fpm*; do :; done
"$fpm" --fpm-config /etc/php/fpm.conf >/var/log/fpm.log 2>&1 </dev/null &
cat >/etc/nginx/nginx.conf <<EOF
user www-data;
worker_processes 1;
daemon off;
error_log stderr;
events { worker_connections 64; }
http {
    access_log off;
    server {
        listen 127.0.0.1:80;
        location / {
            fastcgi_pass unix:/run/php/fpm.sock;
            fastcgi_param SCRIPT_FILENAME /srv/site/index.php;
            fastcgi_param QUERY_STRING \$query_string;
            fastcgi_param REQUEST_URI \$request_uri;
            fastcgi_param REQUEST_METHOD \$request_method;
            fastcgi_param SERVER_PROTOCOL \$server_protocol;
            fastcgi_param HTTP_HOST 127.0.0.1;
        }
    }
}
EOF
nginx -e stderr >/var/log/nginx.log 2>&1 </dev/null &
within_a_minute "curl -sf http://127.0.0.1/ | grep 'A blog'"
echo ready
cat
