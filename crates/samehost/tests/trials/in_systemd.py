"""Trials of a service in its own unit (`samehost run --trial --unit … --install`), with systemd itself: process 1 of namespaces of its
own, on a copy of this machine's root that is in memory. Nothing of it is left when it ends."""

import shlex
import time
from pathlib import Path

from checking import Running, ensure, samehost, tell, temporary, text, wait_until

#: Boots systemd on an overlay of this machine's root: {box} is an empty directory. /proc/sys is read-only, so that it sets nothing of
#: the machine.
BOOT = """set -e
mount -t tmpfs none {box}
mkdir {box}/up {box}/work {box}/root
root={box}/root
mount -t overlay overlay -o lowerdir=/,upperdir={box}/up,workdir={box}/work $root
mount -t proc proc $root/proc
mount -o bind $root/proc/sys $root/proc/sys
mount -o remount,ro,bind $root/proc/sys
mount -t sysfs -o ro sysfs $root/sys
mount -t cgroup2 cgroup $root/sys/fs/cgroup
mount --rbind /dev $root/dev
mount -t tmpfs tmpfs $root/run
mount -t tmpfs tmpfs $root/tmp
ip link set lo up
rm -rf $root/etc/systemd/system
mkdir -p $root/etc/systemd/system $root/srv/shop
cp {folder}/*.service $root/etc/systemd/system
cp {folder}/shop.py $root/srv/shop
cp {program} $root/usr/bin/samehost
ln -s /lib/systemd/system/basic.target $root/etc/systemd/system/default.target
for unit in systemd-udevd systemd-modules-load systemd-tmpfiles-setup-dev systemd-networkd systemd-resolved; do
    ln -s /dev/null $root/etc/systemd/system/$unit.service
done
cd $root
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $root /lib/systemd/systemd --show-status=0
"""

STORE = """[Service]
RuntimeDirectory=store
ExecStart=/usr/bin/redis-server --port 6379 --bind 127.0.0.1 --unixsocket /run/store/redis.sock --unixsocketperm 777 --save "" --dir /run/store
"""
#: A connection for each twenty requests.
SHOP = """import socket, time
while True:
    with socket.create_connection(('127.0.0.1', 6379)) as s:
        for _ in range(20):
            s.sendall(b'PING\\r\\n')
            s.recv(64)
            time.sleep(0.001)
"""
SERVICES = {
    "store": STORE,
    "shop": "[Service]\nUser=www-data\nExecStart=/usr/bin/python3 /srv/shop/shop.py\n",
    # What `samehost` needs kills it; the service itself needs none of that.
    "sealed": "[Service]\nType=notify\nNotifyAccess=all\nSystemCallFilter=~bpf seccomp\n"
    "ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep 600'\n",
    # The same, and nobody waits until it has begun; its name has an escape.
    "sealed\\x2dtoo": "[Service]\nSystemCallFilter=~bpf seccomp\nExecStart=/bin/sleep 600\n",
}
NAMESPACES = ["--mount", "--pid", "--uts", "--ipc", "--cgroup", "--net"]


class Systemd(Running):
    """A systemd with these services."""

    def __init__(self, folder):
        for name, content in SERVICES.items():
            (folder / f"{name}.service").write_text(content)
        (folder / "shop.py").write_text(SHOP)
        box = folder / "box"
        box.mkdir()
        boot = BOOT.format(box=box, folder=folder, program=shlex.quote(samehost()))
        words = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--propagation", "private", "sh", "-c", boot]
        super().__init__(*words, log=folder / "log")
        self.children = f"/proc/{self.child.pid}/task/{self.child.pid}/children"

    def __enter__(self):
        return self.answers(lambda: self.done("systemctl", "is-active", "basic.target", statuses=range(256)) == "active\n")

    def done(self, *command, **options):
        """What a command writes there."""
        with open(self.children) as file:
            first = file.read().split()
        if not first:
            return ""
        enter = ["nsenter", "--target", first[0], *NAMESPACES, "--root", "--wd=/", "env", "HOME=/root"]
        return text(*enter, *command, **options)

    def tried(self, unit, length, **options):
        """Installs a trial of so many seconds."""
        words = ["--exact", "--for", f"{length}s", "--map", "6379=/run/store/redis.sock", "--unit", unit, "--install"]
        return self.done("samehost", "run", "--trial", *words, errors=True, **options)

    def loaded(self):
        """What systemd has of trials."""
        listed = self.done("systemctl", "list-units", "--all", "--plain", "--no-legend", "samehost-trial-*")
        return [line.split()[0] for line in listed.splitlines()]

    def is_as_it_was(self, unit):
        files = self.done("find", "/run/systemd/system", "-type", "f")
        command = self.done("systemctl", "show", "--property=ExecStart", unit)
        is_active = self.done("systemctl", "is-active", unit, statuses=range(256)) == "active\n"
        return is_active and "samehost" not in command + files and not self.loaded()


def unit():
    with temporary() as folder, Systemd(Path(folder)) as machine:
        sealed_too = "sealed\\x2dtoo.service"
        machine.done("systemctl", "start", "store.service", "shop.service", "sealed.service", sealed_too)
        tell(f"unit | {machine.done('systemctl', '--version').splitlines()[0]}, process 1 of its own namespaces")
        machine.tried("shop.service", 5)
        wait_until("the report", lambda: "trial.json" in machine.done("find", "/run/shop-trial"), 30)
        wait_until("the end of the trial", lambda: machine.is_as_it_was("shop.service"), 60)
        tell("unit | a trial of 5 s has its report, ends by its timer, and leaves nothing; the service runs its own command")
        begun = time.monotonic()
        machine.tried("shop.service", 20)
        time.sleep(25)
        ensure(not machine.is_as_it_was("shop.service"), "a second trial ended too early")
        wait_until("the end of the second trial", lambda: machine.is_as_it_was("shop.service"), 60)
        tell(f"unit | a second one, of 20 s, ends by its timer {time.monotonic() - begun:.0f} s after it began")
        machine.tried("shop.service", 60)
        machine.done("systemctl", "start", "samehost-trial-shop.service")
        ensure(machine.is_as_it_was("shop.service"), machine.loaded())
        tell("unit | a third one, of 60 s, is ended at once by systemctl start samehost-trial-shop.service")
        said = machine.tried("sealed.service", 5, statuses=[3])
        ensure(machine.is_as_it_was("sealed.service"), machine.loaded())
        tell(f"unit | one of a service whose filter of system calls forbids it is taken back: {said.strip().splitlines()[-1]}")
        machine.tried(sealed_too, 2)
        time.sleep(2)
        ensure(machine.done("systemctl", "is-active", sealed_too, statuses=range(256)) == "failed\n", "it runs under a trial")
        wait_until("the end of the failed trial", lambda: machine.is_as_it_was(sealed_too), 60)
        tell("unit | one that fails under a trial after systemd took it for started runs as before when the timer ends the trial")
