"""The names that rules make are those of Kafka's SslPrincipalMapper 3.9.1, which has made the expected ones."""

from __future__ import annotations

import pytest

from txbroker.tls.principal_rules import InvalidRule, NoRule, PrincipalRules

NO_RULE, INVALID = None, False
# The rules of Kafka's documentation.
SERVICE = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/"
SITE = "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L"
NAME = "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ('DEFAULT', 'CN=a,O=b', 'CN=a,O=b'),
        ('', 'CN=a,O=b', NO_RULE),
        (f"{SERVICE},{SITE},{NAME},DEFAULT", 'CN=Duke,OU=ServiceUsers,O=Org,C=US', 'Duke'),
        (f"{SERVICE},{SITE}", 'CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US', 'duke@sme'),
        ('RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U', 'cn=duke.x,OU=x', 'DUKE.X'),
        ('RULE:^CN=(.*?)$/$1/', 'O=x', NO_RULE),
        ('RULE:CN=([a-z]+).*/$1/', 'CN=abc,O=x', 'abc'),
        ('RULE:.*CN=([a-z]+).*/$1/', 'S,CN=abc,O=x', 'abc'),
        ('RULE:(.*)CN=([a-z]+)(.*)/$2/', 'CN=abc', 'abc'),
        ('RULE:.*/x/', 'CN=abc', 'xx'),
        ('RULE:.*?/x/', 'CN=abc', 'xCxNx=xaxbxcx'),
        ('RULE:[^,]+.*?/x/', 'CN=abc,O=d', 'x,x'),
        ('RULE:CN=(.*?),.*/$1$2\\$1\\/z/', 'CN=abc,O=d', 'abc$2$1/z'),
        ('RULE:CN=(.*?),O=(.*)/$2-$1$3/', 'CN=abc,O=d', 'd-abc$3'),
        ('RULE:CN=(?<n>.*?),O=(.*)/${n}/', 'CN=abc,O=d', 'abc'),
        ('RULE:CN=(.*?),O=(.*)/$12/', 'CN=abc,O=d', 'abc2'),
        ('RULE:CN=(.*?),O=(.*)/\\1/', 'CN=abc,O=d', '1'),
        ('RULE:CN=(.*?)/$1/ , RULE:O=(.*)/$1/L ', 'O=ABC', 'abc'),
        ('RULE:CN=(.*?)/$1/LU', 'CN=ABc', INVALID),
        ('RULE:CN=(.*?)/$1', 'CN=ABc', INVALID),
        ('RULE:CN=(.*?)/$1/X', 'CN=ABc', INVALID),
        ('DEFAULT,foo', 'CN=ABc', INVALID),
        ('default', 'CN=ABc', INVALID),
        ('RULE:CN=(.*?),O=\\/(.*)/$1/', 'CN=a,O=/b', 'a'),
        ('RULE:CN=(.*?)\\\\,x,O=(.*)/$1/', 'CN=a\\,x,O=b', 'a'),
        ('RULE://x/', 'CN=a', INVALID),
        ('RULE:(/x/', 'CN=a', INVALID),
        ('RULE:CN=(.*)/$1/L\nDEFAULT', 'O=a', 'O=a'),
        ('RULE:CN=(.*)/$1/,,DEFAULT', 'O=a', 'O=a'),
        ('RULE:CN=(.*)/$1/L,', 'O=a', NO_RULE),
        ('RULE:(CN)=(.*)/$0/L', 'CN=ÄÖ', 'cn=äö'),
        ('RULE:CN=(a)?(.*)/$1-$2/', 'CN=b', '-b'),
        ('RULE:CN=(.*)//', 'CN=b', ''),
        ('RULE:CN=(.*)/$1/', 'CN=ab\nc', NO_RULE),
        ('RULE:^CN=(.*)$/$1/', 'CN=ab\n', NO_RULE),
    ],
)
def test_the_name_is_kafkas(rules: str, name: str, expected: str | bool | None) -> None:
    if expected is INVALID:
        with pytest.raises(InvalidRule):
            PrincipalRules(rules)
    elif expected is NO_RULE:
        with pytest.raises(NoRule):
            PrincipalRules(rules).name(name)
    else:
        assert PrincipalRules(rules).name(name) == expected


@pytest.mark.parametrize("rules", ["RULE:CN=(.*?),O=(.*)/${1}/", "RULE:CN=(.*?),O=(.*)/$/", "RULE:CN=\\p{Lu}(.*)/$1/"])
def test_a_rule_that_could_never_be_used_is_refused_at_the_start(rules: str) -> None:
    """Kafka accepts the first two, and then refuses every connection; the third has a class of characters that only Java has."""
    with pytest.raises(InvalidRule):
        PrincipalRules(rules)
