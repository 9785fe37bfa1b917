#!/usr/bin/python
# Copyright (c) the samehost authors
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: switch
short_description: Move a configuration from TCP on localhost to a Unix socket, or back
version_added: 0.1.0
description:
  - Runs C(samehost switch). It logs in over the new transport as the application would, writes,
    reloads and verifies, and puts everything back if a check fails.
  - A configuration that is already where it should be is not touched.
  - In check mode it makes the plan and tries the logins, as C(samehost switch --dry-run) does. It
    returns the files and the differences that the run then makes.
options:
  path:
    description:
      - The directory of an application, configuration files of both sides, a unit of systemd by
        its path, or the name of a service that runs.
      - Required unless O(id) is given.
    type: list
    elements: str
  state:
    description:
      - V(present) moves the configuration to the transport O(to).
      - V(confirmed) does the same, and keeps a switch that would take itself back otherwise.
      - V(absent) undoes the switch that is in force, byte for byte. Where none is in force, or
        somebody has put the old address back already, nothing changes.
    type: str
    choices: [present, confirmed, absent]
    default: present
  id:
    description:
      - The switch to undo or to confirm. Without it, it is found by O(path).
    type: str
  to:
    description:
      - The transport to move to.
    type: str
    choices: [unix, tcp]
    default: unix
  socket:
    description:
      - The socket to use, where the server has none yet, or another than usual.
    type: path
  address:
    description:
      - With O(to=tcp), the address to use where the server has none, such as V(127.0.0.1:9000).
    type: str
  close_tcp:
    description:
      - Have the server stop listening on TCP.
    type: bool
    default: false
  keep_tcp:
    description:
      - Leave TCP open for now where it would go in the last step.
    type: bool
    default: false
  user:
    description:
      - The user that the application runs as, where no process of it can be seen.
    type: str
  server_user:
    description:
      - The user that the server runs as, where that is neither root, the owner of the
        configuration, nor the account that its package made.
    type: str
  reload:
    description:
      - How a service takes a change that neither systemd nor a signal can tell it, as V(COMMAND)
        or V(SERVICE=COMMAND).
    type: list
    elements: str
    default: []
  page:
    description:
      - A page that must be served after the change as before.
    type: str
  confirm_within:
    description:
      - Undo the switch after this time, such as V(30m), unless it is confirmed (O(state=confirmed))
        or the O(page) stayed as it was.
      - V(0) keeps a switch as soon as it is verified. A play that is repeated every hour would
        otherwise make the same switch again and again.
    type: str
    default: "0"
  accept:
    description:
      - Pass what only a person may pass otherwise. V(managed) is a file that says that a program
        such as Ansible writes it, V(shared-files) is one that other machines may read, and
        V(other-files) is one that O(path) does not name, such as the server's own configuration.
      - Where a task of yours writes the file, put the socket into its template instead.
    type: list
    elements: str
    choices: [managed, shared-files, other-files]
    default: []
  observe:
    description:
      - How long to look who else uses an address before it goes, such as V(5s).
    type: str
  executable:
    description:
      - The program, by its name in the path or by its own path.
    type: str
    default: samehost
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
attributes:
  check_mode:
    support: full
    details:
      - The checks of the programs (such as C(nginx -t)), the reloads, the O(page) and the
        verification are made by the run only. Where one fails, the run puts everything back and
        fails.
  diff_mode:
    support: full
    details:
      - Only changed lines are shown, with their numbers. Passwords are masked by samehost.
  platform:
    platforms: linux
notes:
  - Run it with C(become=true). An ordinary user can try the login as that user only.
seealso:
  - module: samehost.samehost.samehost_facts
author:
  - the samehost authors (@samehost)
"""

EXAMPLES = r"""
- name: Have the blog talk to its database over the Unix socket
  samehost.samehost.switch:
    path: /srv/site
    page: http://127.0.0.1/
  become: true

- name: Take the switch back after ten minutes unless it is confirmed
  samehost.samehost.switch:
    path: /srv/site
    confirm_within: 10m
  become: true
  register: switched

- name: Keep it, after checks of your own
  samehost.samehost.switch:
    path: /srv/site
    state: confirmed
  become: true

- name: Put the files back as they were
  samehost.samehost.switch:
    path: /srv/site
    state: absent
  become: true
"""

RETURN = r"""
id:
  description: The switch that is in force for these files, or that was undone.
  returned: when there is one
  type: str
  sample: 20261124-021530-1234
files:
  description: The files that were changed, or would be in check mode, in order.
  returned: always
  type: list
  elements: str
  sample: [/srv/site/wp-config.php]
reloads:
  description: How running programs take the change.
  returned: always
  type: list
  elements: str
notes:
  description: What is worth knowing about it.
  returned: always
  type: list
  elements: str
obstacles:
  description: What bars the switch, or is worth a look, each with its code and its remedy.
  returned: when state is present or confirmed
  type: list
  elements: dict
proofs:
  description: What the kernel and the server said after the switch.
  returned: when a switch was made
  type: list
  elements: str
standing:
  description:
    - How far the change is proved. V(written), the file says so. V(tried), samehost logged in as
      the application. V(in_use), the kernel showed a connection that a process of the application
      opened over the new transport after the change, and none over the old one.
    - With O(page) the application is made to connect.
  returned: when a switch was made
  type: str
  sample: in_use
confirm_until:
  description: When the switch takes itself back, unless it is confirmed.
  returned: when it does
  type: str
  sample: "2026-11-24T03:00:00Z"
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.samehost.samehost.plugins.module_utils.program import Program

AWAITING = "awaiting_confirmation"
IN_FORCE = ("committed", AWAITING)
# A directory of an application: its files are in it, or in one of these.
BELOW = ("", "config", "app/etc")


def plan_arguments(params):
    """What describes the switch on the command line."""
    arguments = ["switch"] + params["path"] + ["--to", params["to"]]
    for name in ("socket", "address", "user", "server_user", "page", "observe"):
        if params[name]:
            arguments += ["--" + name.replace("_", "-"), params[name]]
    for name in ("close_tcp", "keep_tcp"):
        if params[name]:
            arguments.append("--" + name.replace("_", "-"))
    for name in ("reload", "accept"):
        for value in params[name]:
            arguments += ["--" + name, value]
    return arguments + ["--confirm-within", params["confirm_within"]]


def changes_of(steps):
    """Files, reloads and differences of the steps, in order."""
    files, diff, reloads = [], [], []
    for step in steps:
        for reload in step["reloads"]:
            if reload not in reloads:
                reloads.append(reload)
        for changed in step["files"]:
            if changed["path"] not in files:
                files.append(changed["path"])
            diff.append(difference(changed))
    return {"files": files, "reloads": reloads, "diff": diff}


def difference(changed):
    """The lines of a file that go and come, as Ansible shows them."""

    def of(sign):
        lines = [line for line in changed["lines"] if line["sign"] == sign]
        numbers = ", ".join(str(line["line"]) for line in lines)
        text = "".join(line["text"] + "\n" for line in lines)
        return text, "%s, line %s" % (changed["path"], numbers or "-")

    before, before_header = of("-")
    after, after_header = of("+")
    return {
        "before": before,
        "after": after,
        "before_header": "/dev/null" if changed["made"] else before_header,
        "after_header": "/dev/null" if changed["removed"] else after_header,
    }


def obstacles_in_words(report):
    """What bars a switch, or why it was put back, as samehost words it."""
    lines = [report["reason"]]
    for obstacle in report["obstacles"]:
        if obstacle["bars"]:
            lines.append("%s: %s" % (obstacle["code"], obstacle["found"]))
            lines.append(obstacle["remedy"])
    return "\n".join(line for line in lines + report["left"] + report["notes"] if line)


class Switches:
    """The switches of the host, and what is done with them."""

    def __init__(self, module):
        self.module = module
        self.program = Program(module)
        self.params = module.params

    def listed(self):
        """Every switch, oldest first. A dry run: otherwise those that are overdue would take themselves back."""
        return self.program.answer(["switch", "list", "--dry-run"])[0]

    def held(self):
        """Whether each switch in force still is what its files say, by id."""
        held = {}
        for checked in self.program.answer(
            ["switch", "check", "--dry-run"], statuses=(0, 1)
        )[0]:
            held[checked["id"]] = held.get(checked["id"], True) and checked["holds"]
        return held

    def found(self):
        """The newest switch in force that is asked for, or None."""
        held = None
        for entry in reversed(self.listed()):
            if not self.is_asked(entry):
                continue
            if entry["state"] in ("unfinished", "running"):
                self.module.fail_json(
                    msg="the switch %s is %s; run this first: samehost switch recover"
                    % (entry["id"], entry["state"])
                )
            if entry["state"] in IN_FORCE:
                held = self.held() if held is None else held
                if held.get(entry["id"], True):
                    return entry
        return None

    def is_asked(self, entry):
        if self.params["id"]:
            return entry["id"] == self.params["id"]
        command = "samehost switch %s --to " % " ".join(self.params["path"])
        return entry["command"].startswith(command) or any(
            is_of(os.path.realpath(file), os.path.realpath(path))
            for file in entry["files"]
            for path in self.params["path"]
            if "/" in path
        )

    def present(self):
        arguments = plan_arguments(self.params)
        arguments += ["--dry-run", "--yes"] if self.module.check_mode else ["--yes"]
        status, out, err = self.program.run(arguments + ["--json"])
        report = self.module.from_json(out) if out.startswith("{") else None
        if report is None:
            self.program.fail(arguments, status, out, err)
        result = changes_of(report["steps"])
        for name in ("notes", "obstacles", "proofs", "id", "standing", "confirm_until"):
            result[name] = report[name]
        if report["outcome"] not in ("nothing", "left", "planned", "committed"):
            words = obstacles_in_words(report) or err or report["outcome"]
            result.pop("diff")
            self.program.fail(
                arguments, status, "", words, outcome=report["outcome"], **result
            )
        result["changed"] = report["outcome"] not in ("nothing", "left")
        return result

    def confirmed(self):
        result = {"changed": False, "files": [], "reloads": [], "notes": [], "diff": []}
        if self.params["path"]:
            result = self.present()
        entry = self.found()
        if entry is None and self.params["id"]:
            self.module.fail_json(msg="no switch %s is in force" % self.params["id"])
        if entry and entry["state"] == AWAITING:
            if not self.module.check_mode:
                self.act(["switch", "confirm", entry["id"]])
            result.update(changed=True, confirm_until=None)
        return result

    def absent(self):
        result = {"changed": False, "files": [], "reloads": [], "notes": [], "diff": []}
        undone = []
        entry = self.found()
        while entry and entry["id"] not in undone:
            undone.append(entry["id"])
            undo = ["switch", "undo", entry["id"]]
            for planned in self.program.answer(undo + ["--dry-run"])[0]:
                for name, more in changes_of(planned["steps"]).items():
                    result[name] += more
                result["notes"] += planned["left"]
            result.update(changed=True, id=entry["id"])
            if self.module.check_mode:
                break
            self.act(undo + ["--yes"])
            # One that a later switch of the same files had continued.
            entry = self.found()
        return result

    def act(self, arguments):
        status, out, err = self.program.run(arguments)
        if status != 0:
            self.program.fail(arguments, status, out, err)


def is_of(file, path):
    """Whether a changed file belongs to what was named: itself, in the directory of an application, a unit's drop-in."""
    folders = [os.path.join(path, below).rstrip("/") for below in BELOW]
    return file == path or os.path.dirname(file) in folders + [path + ".d"]


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "list", "elements": "str"},
            "state": {
                "type": "str",
                "choices": ["present", "confirmed", "absent"],
                "default": "present",
            },
            "id": {"type": "str"},
            "to": {"type": "str", "choices": ["unix", "tcp"], "default": "unix"},
            "socket": {"type": "path"},
            "address": {"type": "str"},
            "close_tcp": {"type": "bool", "default": False},
            "keep_tcp": {"type": "bool", "default": False},
            "user": {"type": "str"},
            "server_user": {"type": "str"},
            "reload": {"type": "list", "elements": "str", "default": []},
            "page": {"type": "str"},
            "confirm_within": {"type": "str", "default": "0"},
            "accept": {
                "type": "list",
                "elements": "str",
                "choices": ["managed", "shared-files", "other-files"],
                "default": [],
            },
            "observe": {"type": "str"},
            "executable": {"type": "str", "default": "samehost"},
        },
        required_one_of=[("path", "id")],
        required_if=[("state", "present", ["path"])],
        mutually_exclusive=[("close_tcp", "keep_tcp"), ("path", "id")],
        supports_check_mode=True,
    )
    switches = Switches(module)
    result = {
        "present": switches.present,
        "confirmed": switches.confirmed,
        "absent": switches.absent,
    }[module.params["state"]]()
    if result.get("id") is None and module.params["path"]:
        entry = switches.found() or {}
        result["id"] = entry.get("id")
        result["confirm_until"] = entry.get("awaits_confirmation_until")
    if not module._diff:
        result.pop("diff")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
