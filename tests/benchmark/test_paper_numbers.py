"""The numbers of the paper against its own source, where that is at hand."""

import re
from pathlib import Path

import pytest

from bacon_gcd.benchmark import paper_numbers

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "bacon.tex"
LABELS = {
    "TABLE_1": "tab1",
    "TABLE_2": "tab2",
    "TABLE_3": "tab3",
    "TABLE_4": "tab4",
    "ABLATION_A": "tab:ablation_reg",
    "ABLATION_B": "tab:ablation_debiasing_sampling",
    "ABLATION_C": "tab:ablation_loss_design",
    "ABLATION_D": "tab:ablation_est_interval",
    "ABLATION_E": "tab:ablation_sim_func",
    "ABLATION_F": "tab:ablation_hyper_k",
    "APPENDIX_E1": "appendix_tab_diff_yk",
    "APPENDIX_E2": "appendix_tab_few_anno",
    "APPENDIX_E3": "appendix_tab_rhol_neq_rhou",
}


def in_the_paper(label):
    """Every percentage of a table, line by line; what stands before the first & names the row."""
    body = PAPER.read_text().split(rf"\label{{{label}}}")[1].split(r"\end{tabular}")[0]
    rows = [line.partition("&")[2] for line in body.splitlines() if line.count("&") >= 3]
    return [number for row in rows for number in re.findall(r"\d+\.\d", row)]


@pytest.mark.shared
@pytest.mark.skipif(not PAPER.exists(), reason="the source of the paper is not at hand")
@pytest.mark.parametrize("name", LABELS)
def test_every_number_is_that_of_the_paper_in_its_order(name):
    rows = [line.partition("|")[2] for line in getattr(paper_numbers, name).splitlines()]
    ours = [number for row in rows for number in re.findall(r"\d+\.\d", row)]
    assert len(ours) >= 9
    assert ours == in_the_paper(LABELS[name])
