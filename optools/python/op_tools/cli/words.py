# SPDX-License-Identifier: Apache-2.0
"""The help of op-tools in Chinese."""

from __future__ import annotations

DESCRIPTION = """op-tools：查看保存的算子调用，比较，重新运行。

    op-tools ls PATH                 PATH 及其下的所有捕获，或一个捕获里的调用
    op-tools show CAPTURE NUMBER     一次调用，包括张量的值
    op-tools diff A B                两个捕获逐调用比较
    op-tools replay PATH             重新运行每次调用，与捕获的结果比较
    op-tools report CAPTURE          生成一个 HTML 文件
    op-tools first-bad SCRIPT        一次运行中第一个错误的算子
    op-tools self-check SCRIPT       工具是否改变所观察的程序，开销多大
    op-tools import FOLDERS          ditorch 的目录 -> 捕获
    op-tools export CAPTURE FOLDER   捕获 -> ditorch 的目录

退出码：0 一切正常，1 有差异或无法读取，2 用法错误。
"""
COMMANDS = {
    "ls": "列出捕获，或一个捕获里的调用",
    "show": "一次调用及其张量",
    "diff": "两个捕获逐调用比较",
    "replay": "重新运行捕获的调用并比较",
    "report": "为一个捕获生成一个 HTML 文件",
    "first-bad": "脚本运行中第一个错误的算子",
    "self-check": "脚本在有无各工具时的运行：结果逐位相同，开销多大",
    "import": "ditorch 的目录 -> 捕获",
    "export": "捕获 -> ditorch 的目录",
}
LANG = "帮助和报告的语言（默认由 LC_ALL、LC_MESSAGES、LANG 决定）"
