"""One reader under atheris, which looks for bytes that lead to branches not seen before.

python -m tests.reliability.fuzz NAME FOLDER SECONDS
"""

import sys
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["bacon_gcd"]):
    from tests.reliability.readers import MAKERS, Reader


def main():
    name, folder, seconds = sys.argv[1:]
    warnings.simplefilter("ignore")
    corpus = Path(folder) / "corpus"
    corpus.mkdir(parents=True)
    (Path(folder) / name).mkdir()
    reader = Reader(*MAKERS[name](Path(folder) / name))
    (corpus / "sound").write_bytes(reader.file.read_bytes())
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=4096", "-timeout=30"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], reader.holds)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
