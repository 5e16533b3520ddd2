# Completes the commands and options of posfuse; Hydra completes the overrides of posfuse train.
_posfuse() {
    local word="${COMP_WORDS[COMP_CWORD]}" choices=""
    local command=("${COMP_WORDS[0]}" "${COMP_WORDS[1]}")
    if [ "$COMP_CWORD" = 1 ]; then
        choices="COMMANDS"
        compopt +o nospace 2> /dev/null
    elif [ "$COMP_CWORD" = 2 ] && [ "${COMP_WORDS[1]}" = study ]; then
        choices="plan freeze run status"
        compopt +o nospace 2> /dev/null
    elif [[ $word = -* ]]; then
        [ "${COMP_WORDS[1]}" = study ] && command+=("${COMP_WORDS[2]}")
        choices=$("${command[@]}" --help 2> /dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u)
        compopt +o nospace 2> /dev/null
    elif [ "${COMP_WORDS[1]}" = train ]; then
        choices=$(COMP_LINE="posfuse ${COMP_LINE#*train}" "${command[@]}" -sc query=bash \
            2> /dev/null)
    fi
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
complete -o nospace -o default -F _posfuse posfuse
