"""Advice in error messages: the argument that fits, the name or member that was meant, the command
that installs an extra."""

from keyhouse.advice.http_arguments import authorization, service_url
from keyhouse.advice.install import install_line, systems_line
from keyhouse.advice.nearest import nearest

__all__ = ["authorization", "install_line", "nearest", "service_url", "systems_line"]
