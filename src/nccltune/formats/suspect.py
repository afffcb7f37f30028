# SPDX-License-Identifier: Apache-2.0
"""What a study's imports put in doubt."""

from nccltune.formats.reading import ImportRecord
from nccltune.model.study import Study


def suspect_sentences(study: Study) -> list[str]:
    """One sentence for each run that was not what it claimed to be, with its file."""
    return [
        f"{record.file}: {sentence}"
        for record in study.imports(ImportRecord)
        for sentence in record.sentences
    ]
