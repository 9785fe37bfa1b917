<?php
// The private site's only page: what WordPress' own index.php does, with the settings beside this file. Its footer
// has the widgets that many sites have, and the settings of plugins, each of which is loaded by itself.
define('WP_USE_THEMES', true);
require __DIR__ . '/wp-config.php';

add_action('wp_footer', function () {
    echo do_blocks('<!-- wp:latest-posts /--><!-- wp:latest-comments /--><!-- wp:categories /--><!-- wp:archives /-->'
        . '<!-- wp:tag-cloud /--><!-- wp:page-list /-->');
    for ($plugin = 1; $plugin <= 16; $plugin++) {
        echo '<!-- ', esc_html(get_option("samehost_plugin_$plugin")), " -->\n";
    }
});

wp();
require_once ABSPATH . WPINC . '/template-loader.php';
