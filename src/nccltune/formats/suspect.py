# SPDX-License-Identifier: Apache-2.0
"""What a study's imports put in doubt."""

from nccltune.formats.reading import ImportRecord
from nccltune.model.scale import count
from nccltune.model.study import Study


def suspect_sentences(study: Study) -> list[str]:
    """One sentence for each way in which runs were not what they claimed to be: the first file it
    was seen in, and how many more."""
    files: dict[str, list[str]] = {}
    for record in study.imports(ImportRecord):
        for sentence in record.sentences:
            files.setdefault(sentence, []).append(record.file)
    return [
        f"{names[0]}: {sentence}"
        + (f" (and in {count(len(names) - 1, 'file')} more)" if len(names) > 1 else "")
        for sentence, names in files.items()
    ]
