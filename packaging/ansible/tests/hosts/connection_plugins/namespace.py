# Copyright (c) the samehost authors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Connects to a host that is a set of namespaces with a root of its own, by the process that began it."""

from __future__ import annotations

DOCUMENTATION = r"""
name: namespace
short_description: Run tasks in the namespaces of a process
description:
  - Runs commands by C(nsenter), and copies files through C(/proc).
author:
  - the samehost authors (@samehost)
version_added: 0.1.0
options:
  pid:
    description: The process that has the namespaces and the root.
    type: int
    required: true
    vars:
      - name: namespace_pid
"""

import shutil
import subprocess

from ansible.plugins.connection import ConnectionBase


class Connection(ConnectionBase):
    """A host of namespaces."""

    transport = "namespace"
    has_pipelining = False

    def _connect(self):
        return self

    def close(self):
        self._connected = False

    def _in_host(self, path):
        return "/proc/%d/root%s" % (self.get_option("pid"), path)

    def exec_command(self, cmd, in_data=None, sudoable=True):
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        enter = ["nsenter", "--target", str(self.get_option("pid")), "--all", "--root", "--wdns=/"]
        ended = subprocess.run(enter + ["/bin/sh", "-c", cmd], input=in_data or b"", capture_output=True, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    def put_file(self, in_path, out_path):
        shutil.copyfile(in_path, self._in_host(out_path))

    def fetch_file(self, in_path, out_path):
        shutil.copyfile(self._in_host(in_path), out_path)
