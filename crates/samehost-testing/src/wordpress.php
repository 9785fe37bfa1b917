<?php
// Installs the WordPress of the folder named first as the site of the host named second.
[, $root, $host] = $argv;
$_SERVER = ['HTTP_HOST' => $host, 'SERVER_NAME' => explode(':', $host)[0], 'REQUEST_URI' => '/', 'REQUEST_METHOD' => 'GET',
    'PHP_SELF' => '/index.php', 'SERVER_PROTOCOL' => 'HTTP/1.1'] + $_SERVER;
define('WP_INSTALLING', true);
require "$root/wp-load.php";
require ABSPATH . 'wp-admin/includes/upgrade.php';
add_filter('pre_wp_mail', '__return_true');
add_filter('pre_http_request', fn () => new WP_Error('blocked', 'no network'));
wp_install('A blog', 'admin', 'admin@example.invalid', true, '', wp_generate_password(24));
update_option('home', "http://$host");
update_option('siteurl', "http://$host");
// An address of its own would be redirected to, and the site has two ports.
update_option('permalink_structure', '');
echo 'installed';
