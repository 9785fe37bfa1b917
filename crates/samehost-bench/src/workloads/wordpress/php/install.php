<?php
// Installs WordPress in the private database and fills it, always with the same content. Prints dots as progress,
// and one line at the end.
define('WP_INSTALLING', true);
require __DIR__ . '/wp-config.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';

set_time_limit(0);
$dot = static function (): void {
    echo '.';
    flush();
};
add_filter('pre_wp_mail', '__return_true');
add_filter('pre_http_request', fn () => new WP_Error('blocked', 'no network'));

$themes = array_keys(wp_get_themes());
if (!$themes) {
    exit('no theme');
}
$theme = in_array(WP_DEFAULT_THEME, $themes, true) ? WP_DEFAULT_THEME : $themes[0];
wp_install('samehost', 'admin', 'admin@example.invalid', true, '', wp_generate_password(24));
wp_installing(false);
update_option('permalink_structure', '');
// The names of avatar servers are random.
update_option('show_avatars', 0);
switch_theme($theme);
$dot();
foreach (get_posts(['post_type' => ['post', 'page'], 'post_status' => 'any', 'numberposts' => -1]) as $post) {
    wp_delete_post($post->ID, true);
}

$authors = [1];
for ($number = 1; $number <= 3; $number++) {
    $authors[] = wp_insert_user([
        'user_login' => "author$number",
        'user_pass' => wp_generate_password(24),
        'display_name' => "Author $number",
        'role' => 'author',
    ]);
}
$categories = [];
for ($number = 1; $number <= 6; $number++) {
    $categories[] = wp_insert_term("Category $number", 'category')['term_id'];
}
for ($number = 1; $number <= 6; $number++) {
    wp_insert_post(['post_type' => 'page', 'post_title' => "Page $number", 'post_content' => 'A page.',
        'post_status' => 'publish', 'post_date' => sprintf('2019-01-%02d 12:00:00', $number)]);
}
$paragraph = '<!-- wp:paragraph --><p>' . str_repeat('All work and no play makes a page long enough. ', 12)
    . '</p><!-- /wp:paragraph -->';
for ($number = 1; $number <= 24; $number++) {
    $id = wp_insert_post([
        'post_title' => "Post $number",
        'post_content' => "<!-- wp:paragraph --><p>Number $number.</p><!-- /wp:paragraph -->" . str_repeat($paragraph, 6),
        'post_status' => 'publish',
        'post_author' => $authors[$number % 4],
        'post_date' => sprintf('2019-02-%02d 12:00:00', $number),
        'post_category' => [$categories[$number % 6], $categories[($number + 1) % 6]],
        'tags_input' => ['Tag ' . $number % 5, 'Tag ' . $number % 7],
    ]);
    $dot();
    for ($comment = 1; $comment <= 3; $comment++) {
        wp_insert_comment(['comment_post_ID' => $id, 'comment_author' => "Reader $comment",
            'comment_content' => 'So it is.', 'comment_approved' => 1,
            'comment_date' => sprintf('2019-03-%02d 12:00:00', $number)]);
    }
}
for ($plugin = 1; $plugin <= 16; $plugin++) {
    add_option("samehost_plugin_$plugin", "settings of plugin $plugin", '', 'no');
}
echo "\ninstalled WordPress $wp_version, theme $theme";
