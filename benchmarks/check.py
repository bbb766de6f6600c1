# SPDX-License-Identifier: Apache-2.0
"""Fails when a performance page is not what results.json gives, or a missed bar has no reason."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import bars, table


def complaints() -> list[str]:
    recorded = json.loads((Path(__file__).parent / "results.json").read_text())
    found = []
    for page in table.PAGES:
        fresh = table.rendered(page, bars.BARS, bars.WATCHED, recorded)
        if fresh != page.read_text(encoding="utf-8"):
            name = page.relative_to(table.DOCS.parent)
            found.append(f"{name} is stale: run python -m benchmarks.run --write")
    for bar in bars.BARS:
        result = recorded["results"].get(bar.name)
        if result is None:
            found.append(f"{bar.name}: has a bar and was never measured")
        elif result["low"] > bar.limit and not bar.reason:
            found.append(
                f"{bar.name}: missed ({result['low']:.3g} > {bar.limit:g}) without a reason"
            )
    return found


if __name__ == "__main__":
    problems = complaints()
    print("\n".join(problems) or "docs/performance.md and the bars agree")
    sys.exit(bool(problems))
