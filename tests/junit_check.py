"""junit_check.py FILE: the counts of a JUnit report are those of its cases, and each case has one outcome at most. Prints
"tests N failures N errors N skipped N names N"."""
import sys
import xml.etree.ElementTree as ET

root = ET.parse(sys.argv[1]).getroot()
assert root.tag == "testsuites", root.tag
for suite in root:
    cases = suite.findall("testcase")
    found = {"tests": len(cases)}
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        found[key] = sum(len(c.findall(tag)) for c in cases)
    for key, n in found.items():
        assert int(suite.get(key)) == n, f"{key}: {suite.get(key)} stated, {n} found"
        assert key == "skipped" or int(root.get(key)) == n, f"testsuites says {root.get(key)} {key}"
    for c in cases:
        assert sum(c.find(t) is not None for t in ("failure", "error", "skipped")) <= 1, c.get("name")
        assert c.get("classname") and c.get("name") and float(c.get("time")) >= 0
    names = len({(c.get("classname"), c.get("name")) for c in cases})
    print(" ".join(f"{k} {n}" for k, n in found.items()), "names", names)
