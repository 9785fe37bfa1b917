//! WordPress' own installer, for tests that have a site of their own.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// Installs the WordPress below `root`, whose settings are written, as the site of `host` (a port may follow).
pub fn install(root: &Path, host: &str) {
    let install = format!(
        r#"$_SERVER = ['HTTP_HOST' => '{host}', 'SERVER_NAME' => '{name}', 'REQUEST_URI' => '/',
            'REQUEST_METHOD' => 'GET', 'PHP_SELF' => '/index.php', 'SERVER_PROTOCOL' => 'HTTP/1.1'] + $_SERVER;
        define('WP_INSTALLING', true);
        require '{root}/wp-load.php';
        require ABSPATH . 'wp-admin/includes/upgrade.php';
        add_filter('pre_wp_mail', '__return_true');
        add_filter('pre_http_request', fn () => new WP_Error('blocked', 'blocked'));
        wp_install('A blog', 'admin', 'admin@example.invalid', true, '', 'never used');
        update_option('home', 'http://{host}');
        update_option('siteurl', 'http://{host}');
        echo 'done';"#,
        name = host.split(':').next().unwrap_or_default(),
        root = root.display()
    );
    let output = Command::new("php").args(["-d", "display_errors=0", "-r", &install]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).ends_with("done"), "{output:?}");
}
