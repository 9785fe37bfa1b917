#!/usr/bin/python
# Copyright (c) the samehost authors
# SPDX-License-Identifier: MIT OR Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: samehost_facts
short_description: Find which programs of a host talk over loopback TCP
version_added: 0.1.0
description:
  - Runs C(samehost scan --json) and returns what it found as facts.
  - It says which services a host has, who is connected to them, and for each pair over TCP
    whether it could use a Unix socket and what prevents it.
  - It changes nothing, and connects to nothing.
options:
  observe:
    description:
      - Measure the traffic of TCP connections for this long, such as V(10s), and predict what a
        switch would save.
      - What a request costs is what the last C(samehost checkup) of root found out there.
    type: str
  full:
    description:
      - Also return every process, socket and connection. These lists are long.
    type: bool
    default: false
  executable:
    description:
      - The program, by its name in the path or by its own path.
    type: str
    default: samehost
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.facts
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  facts:
    support: full
  platform:
    platforms: linux
notes:
  - Run it with C(become=true). Without it, the programs of other users are hidden.
seealso:
  - module: samehost.samehost.switch
author:
  - the samehost authors (@samehost)
"""

EXAMPLES = r"""
- name: Look at who talks over loopback TCP
  samehost.samehost.samehost_facts:
  become: true

- name: Show the pairs that could use a Unix socket now
  ansible.builtin.debug:
    msg: "{{ ansible_facts.samehost.advice | selectattr('possible', 'equalto', 'now') }}"
"""

RETURN = r"""
ansible_facts:
  description: What the scan found.
  returned: always
  type: dict
  contains:
    samehost:
      description:
        - The JSON document C(samehost.scan/1).
        - The lists C(processes), C(connections) and C(sockets) are left out unless O(full=true).
      type: dict
      returned: always
      contains:
        schema:
          description: Name and version of the format.
          type: str
          returned: always
          sample: samehost.scan/1
        samehost_version:
          description: Version of the program.
          type: str
          returned: always
          sample: 0.1.0
        as_root:
          description: Whether it ran as root, and so could see the programs of all users.
          type: bool
          returned: always
        services:
          description: The services of the host.
          type: list
          elements: dict
          returned: always
        advice:
          description: The pairs that talk over TCP, and whether they could use a Unix socket.
          type: list
          elements: dict
          returned: always
        findings:
          description: What else is worth knowing.
          type: list
          elements: dict
          returned: always
        hidden:
          description: What it could not see.
          type: dict
          returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.samehost.samehost.plugins.module_utils.program import Program

LONG = ("processes", "connections", "sockets")


def main():
    module = AnsibleModule(
        argument_spec={
            "observe": {"type": "str"},
            "full": {"type": "bool", "default": False},
            "executable": {"type": "str", "default": "samehost"},
        },
        supports_check_mode=True,
    )
    arguments = ["scan", "--quiet"]
    if module.params["observe"]:
        arguments += ["--observe", module.params["observe"]]
    found = Program(module).answer(arguments)[0]
    if not module.params["full"]:
        for name in LONG:
            found.pop(name, None)
    module.exit_json(changed=False, ansible_facts={"samehost": found})


if __name__ == "__main__":
    main()
