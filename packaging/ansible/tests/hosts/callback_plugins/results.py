# Copyright (c) the samehost authors
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Prints the result of each task on each host as a line of JSON."""

from __future__ import annotations

DOCUMENTATION = r"""
name: results
type: stdout
short_description: One line of JSON for each result
description:
  - Prints what a module returned, for a program that compares results.
author:
  - the samehost authors (@samehost)
version_added: 0.1.0
"""

import json

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Results as lines."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "results"

    def _line(self, result, state):
        # What it was called with is in its result only where it is very verbose.
        self._display.display(
            json.dumps(
                {
                    "host": result._host.get_name(),
                    "task": result._task.get_name(),
                    "state": state,
                    "result": result._result,
                },
                default=str,
            )
        )

    def v2_runner_on_ok(self, result):
        self._line(result, "changed" if result._result.get("changed") else "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._line(result, "failed")

    def v2_runner_on_skipped(self, result):
        self._line(result, "skipped")

    def v2_runner_on_unreachable(self, result):
        self._line(result, "unreachable")
