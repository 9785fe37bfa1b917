<?php
// The only page of the private site: does what WordPress's own index.php does, with the settings beside this file.
// Its footer has the widgets of many sites, and settings of plugins, each of which is loaded separately.
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
