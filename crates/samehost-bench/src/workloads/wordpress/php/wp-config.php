<?php
// Settings of the private site. Names in braces are filled in when the site is made.
defined('DB_HOST') || define('DB_HOST', 'localhost:{socket}');
define('DB_NAME', '{database}');
define('DB_USER', '{user}');
define('DB_PASSWORD', '{password}');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
define('WP_HOME', 'http://localhost');
define('WP_SITEURL', 'http://localhost');
define('WPMU_PLUGIN_DIR', __DIR__ . '/mu-plugins');
define('AUTOMATIC_UPDATER_DISABLED', true);
defined('DISABLE_WP_CRON') || define('DISABLE_WP_CRON', true);
defined('WP_HTTP_BLOCK_EXTERNAL') || define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_DEBUG', false);
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY', 'AUTH_SALT', 'SECURE_AUTH_SALT',
    'LOGGED_IN_SALT', 'NONCE_SALT'] as $name) {
    define($name, '{password}' . $name);
}
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', '{wordpress}/');
require_once ABSPATH . 'wp-settings.php';
