# Copyright (c) the samehost authors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Runs samehost on the host, and reads what it prints."""

from __future__ import annotations

import json


class Program:
    """samehost as it is installed on the host."""

    def __init__(self, module):
        self.module = module
        self.path = module.get_bin_path(module.params["executable"])
        if self.path is None:
            module.fail_json(
                msg="%s was not found on this host; the role samehost.samehost.samehost installs it"
                % module.params["executable"]
            )

    def run(self, arguments):
        """Exit status, standard output and standard error."""
        return self.module.run_command([self.path] + arguments, environ_update={"NO_COLOR": "1"})

    def answer(self, arguments, statuses=(0,)):
        """What it prints as JSON, and its exit status; any other status than these fails the task with its words."""
        status, out, err = self.run(arguments + ["--json"])
        if status not in statuses:
            self.fail(arguments, status, out, err)
        try:
            return json.loads(out), status
        except ValueError:
            self.fail(arguments, status, out, err)

    def fail(self, arguments, status, out, err, **more):
        """Fails the task with everything that samehost wrote."""
        words = err.strip() or out.strip() or "it wrote nothing"
        self.module.fail_json(
            msg=words,
            cmd=[self.path] + arguments,
            rc=status,
            stdout=out,
            stderr=err,
            **more,
        )
