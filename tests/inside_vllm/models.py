"""Tiny models of real classes in folders, as vLLM loads them: the zoo's, with wider heads.

vLLM's kernel for CPUs knows heads of 32 numbers and more, and some of its models do not read the
width of a head but work it out.
"""

from unittest import mock

from zoo import models, processors, processors_more
from zoo.configs import MROPE

HEAD = 32


def save(name, folder):
    """A model of the zoo with wider heads, and its processor, in a folder."""
    make = models._config

    def wider(name, tokenizer):
        config = make(name, tokenizer)
        text = config.get_text_config()
        text.head_dim = HEAD
        text.num_attention_heads, text.num_key_value_heads = text.hidden_size // HEAD, 1
        sections = getattr(text, "rope_parameters", None) or {}
        if "mrope_section" in sections:
            sections["mrope_section"] = [2 * part for part in MROPE["mrope_section"]]
        return config

    processor = (processors.BUILDERS | processors_more.BUILDERS)[name]()
    with mock.patch.object(models, "_config", wider):
        model = models.model(name, processor.tokenizer)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
